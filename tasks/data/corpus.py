"""Documents of many lengths, one behind the other, and fair cuts of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int32, Int64, UInt8
from torch import Tensor

from tasks.contract import Split, SplitName
from zoo.registry import UserError

FIELDS = ("values", "ends", "targets")

DEV_SEED = 0
"""Decides which training examples are held out."""


@dataclass(frozen=True)
class Corpus:
    """Documents with a class each.

    Attributes:
        values: (v,), the bytes or tokens of all documents, concatenated.
        ends: (s,), where each document ends in `values`.
        targets: (s,), the class of each document.
    """

    values: UInt8[np.ndarray, " v"]
    ends: Int64[np.ndarray, " s"]
    targets: UInt8[np.ndarray, " s"]

    @classmethod
    def of(cls, sequences: Sequence[bytes], targets: Sequence[int]) -> "Corpus":
        """A corpus of those documents, in order."""
        ends = np.cumsum([len(one) for one in sequences], dtype=np.int64)
        values = np.frombuffer(b"".join(sequences), np.uint8)
        return cls(values, ends, np.asarray(targets, np.uint8))

    def __len__(self) -> int:
        """Number of documents."""
        return len(self.ends)

    def document(self, index: int) -> UInt8[np.ndarray, " l"]:
        """One document."""
        start = self.ends[index - 1] if index else 0
        return self.values[start : self.ends[index]]

    def arrays(self, prefix: str) -> dict[str, np.ndarray]:
        """The fields by the names under which a file keeps them."""
        fields = (self.values, self.ends, self.targets)
        return dict(zip(names(prefix), fields, strict=True))

    def split(self, chosen: Int64[np.ndarray, " n"], length: int, first: int) -> Split:
        """The chosen documents as a padded split.

        Args:
            chosen: (n,), indices of documents.
            length: documents are cut, and padded with 0, to that many tokens.
            first: the token that stands for the value 0; no value plus `first` may exceed 255.
        """
        sequences, lengths = padded(self.values, self.ends, chosen, length, first)
        targets = torch.from_numpy(self.targets[chosen].astype(np.int64))
        return Split.single(sequences, lengths, targets)


def padded(
    values: UInt8[np.ndarray, " v"],
    ends: Int64[np.ndarray, " s"],
    chosen: Int64[np.ndarray, " n"],
    length: int,
    first: int,
) -> tuple[UInt8[Tensor, "n l"], Int32[Tensor, " n"]]:
    """The chosen documents side by side, and their lengths.

    The arguments are as in `Corpus` and `Corpus.split`.
    """
    sequences = np.zeros((len(chosen), length), np.uint8)
    lengths = np.empty(len(chosen), np.int32)
    for row, index in enumerate(chosen.tolist()):
        start = ends[index - 1] if index else 0
        kept = values[start : ends[index]][:length]
        lengths[row] = len(kept)
        np.add(kept, first, out=sequences[row, : len(kept)])
    return torch.from_numpy(sequences), torch.from_numpy(lengths)


def legible(sequences: Iterable[Sequence[int]], first: int) -> list[str]:
    """Documents of bytes as text; the replacement character stands for what is cut in two.

    Args:
        sequences: the tokens of each.
        first: the token that stands for the byte 0.
    """
    return [bytes(token - first for token in one).decode(errors="replace") for one in sequences]


def names(prefix: str) -> list[str]:
    """The names under which a file keeps the corpus `prefix`, in the order of its fields."""
    return [f"{prefix}_{field}" for field in FIELDS]


def official(split: SplitName) -> SplitName:
    """The split of a publisher who published no dev split: dev is held out of train."""
    return "test" if split == "test" else "train"


def members(
    owner: str, targets: UInt8[np.ndarray, " n"], split: SplitName, count: int
) -> Int64[np.ndarray, " kept"]:
    """Which examples of the official split make `split`.

    Args:
        owner: the task, for a message.
        targets: the classes of all examples of the official split.
        split: what is to be made; of train and dev neither holds what the other does.
        count: how many are kept.

    Raises:
        UserError: there are not as many.
    """
    if split == "test":
        everyone = np.arange(len(targets))
    else:
        train, dev = held_out(targets)
        everyone = dev if split == "dev" else train
    return thinned(f"{owner}.{split}", everyone, count)


def held_out(
    targets: UInt8[np.ndarray, " n"],
) -> tuple[Int64[np.ndarray, " kept"], Int64[np.ndarray, " held"]]:
    """Cut a tenth of every class off: the indices that stay, and those cut off, each ascending.

    The cut depends on `Generator.random` alone, whose stream NumPy keeps.
    """
    draws = np.random.Generator(np.random.PCG64(DEV_SEED)).random(len(targets))
    held = np.zeros(len(targets), bool)
    for value in np.unique(targets):
        alike = np.flatnonzero(targets == value)
        alike = alike[draws[alike].argsort(kind="stable")]
        held[alike[: len(alike) // 10]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def thinned(owner: str, chosen: Int64[np.ndarray, " n"], count: int) -> Int64[np.ndarray, " kept"]:
    """Evenly spaced `count` of the chosen examples: all classes stay where they stand in blocks.

    Raises:
        UserError: there are not as many; `owner` is the option that asked.
    """
    if not 1 <= count <= len(chosen):
        raise UserError(f"{owner}={count} is out of range; give 1 to {len(chosen)}")
    return chosen[np.arange(count) * len(chosen) // count]
