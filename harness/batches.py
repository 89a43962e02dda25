"""The examples of each batch, and the length that they are padded to."""

from collections.abc import Iterator

import torch
from jaxtyping import Int
from torch import Tensor

from tasks.contract import Split
from zoo.registry import UserError

POOL = 100
"""Batches whose examples are sorted by length together."""

LENGTH_STEP = 64
"""Batches of similar length are padded to a multiple of this: few shapes, for caches of kernels."""


class ShuffledBatches:
    """Batches of a seeded permutation, a new one each epoch; the incomplete last batch is skipped.

    A batch depends on its number alone, so that a resumed run trains on the same data.
    """

    def __init__(
        self,
        count: int,
        batch: int,
        seed: int,
        device: torch.device,
        lengths: Int[Tensor, " n"] | None = None,
    ) -> None:
        """Shuffle `count` examples in batches of `batch`, of similar length if `lengths` is given.

        Raises:
            UserError: `count` is less than one batch.
        """
        if count < batch:
            raise UserError(f"batch={batch} exceeds the {count} training examples; lower the batch")
        self._per_epoch, self._batch = count // batch, batch
        self._count, self._seed, self._device = count, seed, device
        self._lengths = None if lengths is None else lengths.cpu()
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.int64)
        self._longest: list[int] = []

    def batch(self, number: int) -> Int[Tensor, " b"]:
        """Indices of the examples of batch `number`, counted from 0 over all epochs."""
        index = self._start_epoch(number)
        return self._order[index * self._batch : (index + 1) * self._batch]

    def length(self, number: int) -> int | None:
        """The length to pad batch `number` to; None, for the task's, without lengths."""
        index = self._start_epoch(number)
        return padded_length(self._longest[index]) if self._longest else None

    def _start_epoch(self, number: int) -> int:
        """Shuffle for the epoch of batch `number`; return the position of the batch in it."""
        epoch, index = divmod(number, self._per_epoch)
        if epoch != self._epoch:
            # On the CPU, so that the order is the same on every device.
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
    """The examples of `order`, a multiple of `batch`, in batches of similar length, shuffled.

    Examples are sorted within pools of `POOL` batches: each epoch has other batches.
    """
    pools = order.split(POOL * batch)
    batches = torch.cat([pool[lengths[pool].argsort(stable=True)] for pool in pools])
    shuffled = torch.randperm(len(order) // batch, generator=generator)
    return batches.view(-1, batch)[shuffled].flatten()


def padded_length(longest: int) -> int:
    """The next multiple of `LENGTH_STEP`."""
    return -(-longest // LENGTH_STEP) * LENGTH_STEP


def in_order(
    split: Split, batch: int, by_length: bool
) -> Iterator[tuple[Int[Tensor, " b"], int | None]]:
    """All examples of a split in batches, each with the length to pad it to; None: the task's.

    The examples are in the order of the split, or of their length.
    """
    order = torch.arange(len(split), device=split.targets.device)
    if not by_length:
        yield from ((examples, None) for examples in order.split(batch))
        return
    lengths, order = split.example_lengths().sort(stable=True)
    longest = torch.stack([part[-1] for part in lengths.split(batch)]).tolist()
    for examples, length in zip(order.split(batch), longest, strict=True):
        yield examples, padded_length(length)
