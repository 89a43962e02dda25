"""Sequences of different lengths, concatenated, and seeded subsets of examples."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int32, Int64, Integer, UInt8
from numpy.typing import DTypeLike
from torch import Tensor

from tasks.contract import SPLITS, Split, SplitName, Task
from zoo.registry import UserError, require_at_least, require_memory

DEV_SEED = 0  # Selects the training examples that become the dev split
FIRST_BYTE = 1  # The token of the byte 0 in a `ByteTask`


class ByteTask(Task):
    """A task of UTF-8 texts: token = byte + `FIRST_BYTE`."""

    vocabulary = FIRST_BYTE + 256  # UTF-8 has no byte above 0xF4: tokens fit in a uint8

    def show(self, split: Split, example: int) -> list[str]:
        # A truncated character becomes the replacement character.
        texts = (bytes(token - FIRST_BYTE for token in s) for s in split.tokens(example))
        return [text.decode(errors="replace") for text in texts]


MAX_CLASSES = 256  # A target is stored as a byte

# Categories of Unicode: control characters, halves of surrogate pairs, breaks of lines.
UNREADABLE = {"Cc", "Cs", "Zl", "Zp"}

# The arrays of a `Corpus`, for `cache.read`.
FIELDS = {"values": "uint8 v", "ends": "int64 s", "targets": "uint8 s"}


@dataclass(frozen=True)
class Corpus:
    values: Integer[np.ndarray, " v"]  # The bytes or tokens of all sequences, concatenated
    ends: Int64[np.ndarray, " s"]  # The end of each sequence in `values`
    targets: UInt8[np.ndarray, " s"]

    @classmethod
    def of(
        cls, sequences: Sequence[bytes], targets: Sequence[int], kind: DTypeLike = np.uint8
    ) -> "Corpus":
        values = np.frombuffer(b"".join(sequences), kind)
        ends = np.cumsum([*map(len, sequences)], dtype=np.int64) // values.itemsize
        return cls(values, ends, np.asarray(targets, np.uint8))

    def __len__(self) -> int:
        return len(self.ends)

    def sequences(self) -> list[bytes]:
        sequences = np.split(self.values, self.ends[:-1])
        return [sequence.tobytes() for sequence in sequences[: len(self)]]

    def repeats(self) -> Bool[np.ndarray, " s"]:
        sequences = self.sequences()
        counts = Counter(sequences)
        return np.array([counts[sequence] > 1 for sequence in sequences])

    def arrays(self, prefix: str) -> dict[str, np.ndarray]:
        return {f"{prefix}_{name}": getattr(self, name) for name in FIELDS}

    def split(self, chosen: Int64[np.ndarray, " n"], length: int, first: int) -> Split:
        sequences, lengths = pad(self.values, self.ends, chosen, length, first)
        return Split.single(sequences, lengths, torch.from_numpy(self.targets[chosen]))


def pad(
    values: Integer[np.ndarray, " v"], ends: Int64[np.ndarray, " s"],
    chosen: Int64[np.ndarray, " n"], length: int, first: int,
) -> tuple[Integer[Tensor, "n l"], Int32[Tensor, " n"]]:  # fmt: skip
    # `first` is the token of the value 0; the type of `values` holds every value plus `first`.
    what = f"{len(chosen)} sequences of {length:.3g} tokens"
    require_memory(len(chosen) * length * values.itemsize, what, "lower max_len")
    sequences = np.zeros((len(chosen), length), values.dtype)
    lengths = np.empty(len(chosen), np.int32)
    texts = np.split(values, ends[:-1])
    for row, index in enumerate(chosen.tolist()):
        truncated = texts[index][:length]
        lengths[row] = len(truncated)
        np.add(truncated, first, out=sequences[row, : len(truncated)])
    return torch.from_numpy(sequences), torch.from_numpy(lengths)


def official(split: SplitName) -> SplitName:
    return "test" if split == "test" else "train"


BLOCKS = 10


def in_split(
    targets: UInt8[np.ndarray, " n"], split: SplitName,
    repeats: Bool[np.ndarray, " n"] | None = None, *, in_blocks: bool = False,
) -> Int64[np.ndarray, " count"]:  # fmt: skip
    # Dev is a tenth of every class, drawn by `Generator.random`, whose stream NumPy guarantees.
    # With `in_blocks` it is the end of each of ten blocks: neighbours are similar. Train has all
    # examples that occur more than once, where `repeats` is true.
    if split == "test":
        return np.arange(len(targets))
    keys = np.random.Generator(np.random.PCG64(DEV_SEED)).random(len(targets))
    is_dev = np.zeros(len(targets), bool)
    for value in np.unique(targets):
        members = np.flatnonzero(targets == value)
        if in_blocks:
            size = -(-len(members) // BLOCKS)
            keys[members] = -(np.arange(len(members)) % size)
        if repeats is not None:
            keys[repeats] = 1.0  # above all others
        members = members[keys[members].argsort(kind="stable")]
        is_dev[members[: len(members) // 10]] = True
    return np.flatnonzero(is_dev == (split == "dev"))


def class_order(owner: str | Path, names: Iterable[str]) -> list[str]:
    # In the order of numbers if all names are numbers, else of texts.
    found = sorted({*names})
    for name in found:
        if not name.strip() or any(unicodedata.category(c) in UNREADABLE for c in name):
            raise UserError(f"{owner} has class {name!r}, which is not a line of text; rename it")
        if name != name.strip() and name.strip() in found:
            raise UserError(f"{owner} has classes {name!r} and {name.strip()!r}; give one name")
    if all(re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", name) for name in found):
        found.sort(key=Decimal)
    return found


def require_shares(owner: str, dev: float, test: float, seed: int) -> None:
    require_at_least(0, owner, seed=seed)
    if not (dev > 0 and test > 0 and dev + test < 1):
        shares = f"{owner}.dev={dev} and {owner}.test={test}"
        raise UserError(f"{shares} must be above 0 and below 1 together; give shares such as 0.1")


def stratified(
    targets: Int64[np.ndarray, " n"], keys: Float64[np.ndarray, " n"], classes: Sequence[str], *,
    dev: float, test: float | None, owner: str, items: str,
) -> Int64[np.ndarray, " n"]:  # fmt: skip
    # The split of each example. Random `keys` order the examples of a class. Without a share of
    # test, no example is in it. Messages use `classes`, `owner` and `items`.
    splits = np.zeros(len(targets), np.int64)
    needed = 2 if test is None else 3
    for target, name in enumerate(classes):
        members = np.flatnonzero(targets == target)
        if len(members) < needed:
            found = f"{owner} has {len(members)} {items} of class {name!r}"
            raise UserError(f"{found}, {needed} splits need one each; add some, or remove it")
        members = members[keys[members].argsort(kind="stable")]
        # At least one example in each split, whatever the shares.
        in_test = 0 if test is None else min(max(1, round(test * len(members))), len(members) - 2)
        in_dev = min(max(1, round(dev * len(members))), len(members) - in_test - 1)
        splits[members[:in_dev]] = SPLITS.index("dev")
        splits[members[in_dev : in_dev + in_test]] = SPLITS.index("test")
    return splits
