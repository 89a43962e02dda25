"""The batches that training reads: their examples and length; images, decoded and augmented."""

import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from harness.records.spec import TrainSpec
from tasks.contract import Batch, Split
from tasks.data.images import ImageSplit, transform_of
from zoo.registry import UserError

POOL = 100  # Batches whose examples are sorted by length together
LENGTH_STEP = 64  # Batches are padded to multiples: few shapes, for caches of kernels
Read = Callable[[int], Sequence[Batch]]  # The batch of a step, from 0, in parts of equal length
Images = Float[np.ndarray, "b 3 h w"]


class ShuffledBatches:
    """Batches of a seeded permutation for each epoch; the incomplete last batch is skipped.

    A batch depends only on its number, so that a resumed run trains on the same data.
    """

    def __init__(
        self, count: int, batch: int, seed: int, device: torch.device,
        lengths: Int[Tensor, " n"] | None = None,
    ) -> None:  # fmt: skip
        if count < batch:
            raise UserError(f"batch={batch} exceeds the {count} training examples; lower the batch")
        self._per_epoch, self._batch = count // batch, batch
        self._count, self._seed, self._device = count, seed, device
        self._lengths = None if lengths is None else lengths.cpu()
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.int64)
        self._longest: list[int] = []

    def batch(self, number: int) -> Int[Tensor, " b"]:
        index = self._start_epoch(number)
        return self._order[index * self._batch : (index + 1) * self._batch]

    def length(self, number: int) -> int | None:
        index = self._start_epoch(number)
        return padded_length(self._longest[index]) if self._longest else None

    def _start_epoch(self, number: int) -> int:
        epoch, index = divmod(number, self._per_epoch)
        if epoch != self._epoch:
            # On the CPU: the same order on every device.
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
            order = torch.randperm(self._count, generator=generator)
            if self._lengths is not None:
                order = order[: self._per_epoch * self._batch]
                order = bucket_by_length(order, self._lengths, self._batch, generator)
                self._longest = self._lengths[order].view(-1, self._batch).amax(1).tolist()
            self._epoch, self._order = epoch, order.to(self._device)
        return index


def bucket_by_length(
    order: Int[Tensor, " n"], lengths: Int[Tensor, " m"], batch: int, generator: torch.Generator
) -> Int[Tensor, " n"]:
    # Sorted within pools of batches, so that batches differ between epochs.
    pools = order.split(POOL * batch)
    batches = torch.cat([pool[lengths[pool].argsort(stable=True)] for pool in pools])
    shuffled = torch.randperm(len(order) // batch, generator=generator)
    return batches.view(-1, batch)[shuffled].flatten()


def padded_length(longest: int) -> int:
    return -(-longest // LENGTH_STEP) * LENGTH_STEP


def in_order(
    split: Split, batch: int, by_length: bool
) -> Iterator[tuple[Int[Tensor, " b"], int | None]]:
    order = torch.arange(len(split), device=split.targets.device)
    if not by_length:
        return ((examples, None) for examples in order.split(batch))
    lengths, order = split.example_lengths().sort(stable=True)
    longest = torch.stack([part[-1] for part in lengths.split(batch)]).tolist()
    return zip(order.split(batch), map(padded_length, longest), strict=True)


def reader(train: Split, order: ShuffledBatches, spec: TrainSpec, seed: int) -> Read:
    if isinstance(train, ImageSplit):
        images = AugmentedImages(train, spec, seed)
        return lambda number: [images(number)]
    if not spec.parts_by_length:
        return lambda number: [train.gather(order.batch(number), order.length(number))]
    # On the CPU: no step waits for the device.
    of_examples = train.example_lengths().cpu()
    counted = train.answers.counted(train.targets).cpu()
    counts = counted.long().flatten(1).sum(1) if counted.ndim > 1 else None

    def by_length(number: int) -> list[Batch]:
        examples = order.batch(number)
        on_cpu, parts = examples.cpu(), []
        lengths = of_examples[on_cpu]
        for length in lengths.unique().tolist():
            chosen = lengths == length
            batch = train.gather(examples[chosen.to(examples.device)], length)
            targets, positions = batch.targets, batch.target_positions
            if counts is not None and positions is not None:
                most = int(counts[on_cpu[chosen]].max())
                targets, positions = targets[:, :most], positions[:, :most]
            parts.append(replace(batch, mask=None, targets=targets, target_positions=positions))
        return parts

    return by_length


class AugmentedImages:
    """Augmented batches of images, which depend only on the seed and the number of the batch.

    Processes, one fewer than threads, decode the next batches while they are read in order. The
    last batch is kept: a step that is repeated to measure its time does not decode again.
    """

    def __init__(self, train: ImageSplit, spec: TrainSpec, seed: int) -> None:
        self.train, self.spec, self.seed = train, spec, seed
        self.decoded = DecodedBatches(train, spec, seed)
        self._number: int | None = None
        self._batch: Batch | None = None
        self._ahead: Iterator[Images | str] | None = None

    def __call__(self, number: int) -> Batch:
        if self._batch is None or number != self._number:
            images = self._decode(number)
            if isinstance(images, str):
                raise UserError(images)
            device = self.train.targets.device
            tokens = torch.from_numpy(images).to(device)
            targets = self.train.targets[self.decoded.order.batch(number).to(device)]
            augment = self.spec.augment
            if augment and (augment.mixup or augment.cutmix):
                from timm.data.mixup import Mixup

                # The loss smooths labels.
                classes = self.train.classes
                mix = Mixup(augment.mixup, augment.cutmix, label_smoothing=0.0, num_classes=classes)
                with seeded(self.seed, number):
                    tokens, targets = mix(tokens, targets)
            self._batch, self._number = Batch(tokens, None, targets), number
        return self._batch

    def _decode(self, number: int) -> Images | str:
        workers = torch.get_num_threads() - 1
        if not workers or self._number is None or number != self._number + 1:
            self._ahead = None
            return self.decoded[number]
        if self._ahead is None:
            loader: Any = DataLoader(
                self.decoded, batch_size=None, sampler=range(number, self.spec.steps),
                num_workers=workers, prefetch_factor=1, worker_init_fn=_ignore_interrupts,
                # Arrays pass through a pipe; tensors would use shared memory.
                collate_fn=_unchanged,
                # A separate generator keeps the random numbers of the model.
                generator=torch.Generator(),
            )  # fmt: skip
            self._ahead = iter(loader)
        return next(self._ahead)


class DecodedBatches(Dataset):
    def __init__(self, train: ImageSplit, spec: TrainSpec, seed: int) -> None:
        self.train, self.seed = train, seed
        # On the CPU, for processes that decode.
        self.order = ShuffledBatches(len(train), spec.batch, seed, torch.device("cpu"))
        kind = spec.augment.transform if spec.augment else "none"
        self.transform = transform_of(kind, train.pixels)

    def __getitem__(self, number: int) -> Images | str:
        images: list[np.ndarray] = []
        try:
            for example in self.order.batch(number).tolist():
                with seeded(self.seed, number, example):
                    images.append(self.train.image(example, self.transform).numpy())
        except UserError as error:  # as text: a process that decodes would add its traceback
            return str(error)
        return np.stack(images)


@contextmanager
def seeded(*key: int) -> Iterator[None]:
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    value = int(np.random.SeedSequence(key).generate_state(1)[0])
    random.seed(value)
    np.random.seed(value)
    torch.default_generator.manual_seed(value)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def _unchanged(batch: Any) -> Any:
    return batch


def _ignore_interrupts(worker: int) -> None:
    # Terminals and schedulers signal all processes; this one ends with its parent.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
