"""The batches that training reads: gathered in memory, or images that are decoded and augmented."""

import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch.utils.data import DataLoader, Dataset

from harness.batches import ShuffledBatches
from harness.records.spec import TrainSpec
from tasks.contract import Batch, Split
from tasks.data.images import ImageSplit
from tasks.data.transforms import transform_of
from zoo.registry import UserError

Read = Callable[[int], Batch]
"""Gives the batch of a step, counted from 0."""

Images = Float[np.ndarray, "b 3 h w"]


def reader(train: Split, order: ShuffledBatches, spec: TrainSpec, seed: int) -> Read:
    """What reads the batches of `train` in `order`, as the recipe augments them."""
    if isinstance(train, ImageSplit):
        return AugmentedImages(train, spec, seed)
    return lambda number: train.gather(order.batch(number), order.length(number))


class AugmentedImages:
    """Augmented batches of images, which depend on the seed and the number of the batch alone.

    While batches are read in order, processes decode the next ones, one process less than this one
    has threads. The batch that was read last is kept: a step that is repeated to measure its time
    does not decode again.
    """

    def __init__(self, train: ImageSplit, spec: TrainSpec, seed: int) -> None:
        """Prepare to read `train`; nothing is decoded yet."""
        self.train, self.spec, self.seed = train, spec, seed
        self.decoded = DecodedBatches(train, spec, seed)
        self._number: int | None = None
        self._batch: Batch | None = None
        self._ahead: Iterator[Images | str] | None = None

    def __call__(self, number: int) -> Batch:
        """Batch `number`, on the device of the split.

        Raises:
            UserError: a file is damaged or missing.
        """
        if self._batch is None or number != self._number:
            images = self._decode(number)
            if isinstance(images, str):
                raise UserError(images)
            self._batch, self._number = self._finish(number, images), number
        return self._batch

    def _decode(self, number: int) -> Images | str:
        workers = torch.get_num_threads() - 1
        if not workers or self._number is None or number != self._number + 1:
            self._ahead = None
            return self.decoded[number]
        if self._ahead is None:
            loader: Any = DataLoader(
                self.decoded,
                batch_size=None,
                sampler=range(number, self.spec.steps),
                num_workers=workers,
                prefetch_factor=1,
                collate_fn=_unchanged,
                worker_init_fn=_ignore_interrupts,
                # A separate one, so that the random numbers of the model do not depend on it.
                generator=torch.Generator(),
            )
            self._ahead = iter(loader)
        return next(self._ahead)

    def _finish(self, number: int, images: Images) -> Batch:
        """The batch on the device, mixed."""
        device = self.train.targets.device
        tokens = torch.from_numpy(images).to(device)
        targets = self.train.targets[self.decoded.order.batch(number).to(device)]
        augment = self.spec.augment
        if augment is None or not (augment.mixup or augment.cutmix):
            return Batch(tokens, None, targets)
        from timm.data.mixup import Mixup

        # The smoothing of labels belongs to the loss.
        mix = Mixup(
            augment.mixup,
            augment.cutmix,
            label_smoothing=0.0,
            num_classes=self.train.classes,
        )
        with seeded(self.seed, number):
            tokens, targets = mix(tokens, targets)
        return Batch(tokens, None, targets)


class DecodedBatches(Dataset):
    """Batches by number, decoded and transformed image by image; a message in place of an error."""

    def __init__(self, train: ImageSplit, spec: TrainSpec, seed: int) -> None:
        """Prepare; nothing is decoded yet."""
        self.train, self.seed = train, seed
        # On the CPU, where the processes that decode use it.
        self.order = ShuffledBatches(len(train), spec.batch, seed, torch.device("cpu"))
        self.transform = transform_of(
            spec.augment.transform if spec.augment else "none", train.pixels
        )

    def __getitem__(self, number: int) -> Images | str:
        """Batch `number`, or what is wrong with an image of it."""
        try:
            return np.stack([self._image(number, i) for i in self.order.batch(number).tolist()])
        except UserError as error:  # as text, since a process that decodes adds its traceback
            return str(error)

    def _image(self, number: int, example: int) -> np.ndarray:
        with seeded(self.seed, number, example):
            return self.train.image(example, self.transform).numpy()


@contextmanager
def seeded(*key: int) -> Iterator[None]:
    """Seed the generators of Python, numpy and PyTorch on the CPU from `key`; then restore them.

    timm draws from all three.
    """
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
    """The batch as an array, which reaches this process through a pipe, not shared memory."""
    return batch


def _ignore_interrupts(worker: int) -> None:
    # A terminal and a scheduler signal all processes; this one ends with its parent.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
