"""Tasks whose examples are drawn from a seed each time they are loaded; nothing is cached.

Every draw uses `Generator.random` only, whose stream NumPy guarantees.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int, Shaped
from torch import Tensor
from typing_extensions import override

from tasks.answers import CLASSES, Answers
from tasks.contract import NO_ANSWER, SPLITS, Minimum, Split, SplitName, Task
from zoo.registry import UserError

FIRST_SYMBOL = 2
"""The token of the first symbol of a `SymbolTask`."""

SHUFFLED = 2**20
"""Integers that are shuffled at a time: a few dozen megabytes."""


class Stream:
    """Uniform draws of one split: the stream `number` of a seed."""

    def __init__(self, seed: int, number: int) -> None:
        seeds = np.random.SeedSequence(entropy=seed, spawn_key=(number,))
        self._generator = np.random.Generator(np.random.PCG64(seeds))

    def uniform(self, *shape: int) -> Float64[np.ndarray, "..."]:
        """Numbers in [0, 1)."""
        return self._generator.random(shape)

    def integers(self, bound: int, *shape: int) -> Int[np.ndarray, "..."]:
        """Integers in 0..bound - 1."""
        return (self.uniform(*shape) * bound).astype(np.int64)

    def distinct(self, count: int, bound: int, rows: int) -> Int[np.ndarray, "rows count"]:
        """In each row `count` different integers in 0..bound - 1, in random order.

        Memory stays bounded, except for the result. A row of independent draws has no repetition
        with probability exp(-count**2 / 2 / bound): where that is small, all integers are shuffled.
        """
        if bound <= 4 * count or count**2 > 8 * bound:
            values, step = np.empty((rows, count), np.int64), max(1, SHUFFLED // bound)
            for first in range(0, rows, step):
                keys = self.uniform(min(step, rows - first), bound)
                values[first : first + step] = keys.argsort(1, kind="stable")[:, :count]
            return values
        values = self.integers(bound, rows, count)
        while len(repeating := np.flatnonzero((np.diff(np.sort(values)) == 0).any(1))):
            values[repeating] = self.integers(bound, len(repeating), count)
        return values


class Examples(NamedTuple):
    """Generated examples.

    Attributes:
        target_positions: (n, a); None where an example has one target.
        lengths: (n,), the real tokens of each; None where no sequence is padded.
    """

    sequences: Int[np.ndarray, "n l"]
    targets: Shaped[np.ndarray, "n ..."]
    target_positions: Int[np.ndarray, "n a"] | None = None
    lengths: Int[np.ndarray, " n"] | None = None


@dataclass(frozen=True, kw_only=True)
class SyntheticTask(Task):
    """A task that draws its examples.

    Attributes:
        max_len: tokens per example.
        vocabulary: vocabulary size.
        causal: whether the model is causal.
        train, dev, test: examples in the split of that name.
        seed: seed of every draw.
        vocabulary_option: the option that determines the vocabulary size.
        answers: the kind of the targets.
    """

    vocabulary_option: ClassVar[str] = "symbols"
    answers: ClassVar[Answers] = CLASSES

    train: int = 100_000
    dev: int = 1_000
    test: int = 2_000
    seed: int = 0

    @abstractmethod
    def draw(self, stream: Stream, count: int) -> Examples:
        """Draw `count` examples."""

    @override
    def load(self, split: SplitName) -> Split:
        stream = Stream(self.seed, SPLITS.index(split))
        return self.split_of(self.draw(stream, getattr(self, split)))

    def split_of(self, examples: Examples) -> Split:
        """The split of generated examples."""
        dtype = np.uint8 if self.vocabulary <= 2**8 else np.int16
        tokens = torch.from_numpy(examples.sequences.astype(dtype))
        positions, lengths = (
            None if found is None else torch.from_numpy(found.astype(np.int32))
            for found in (examples.target_positions, examples.lengths)
        )
        targets = torch.from_numpy(examples.targets)
        return Split.single(tokens, lengths, targets, positions, self.answers)

    def _require(self, **minima: Minimum) -> None:
        super()._require(**minima)
        if self.vocabulary > 2**15:  # tokens are stored in 16 bits
            option = self.vocabulary_option
            raise UserError(
                f"{self.name}.{option}={getattr(self, option)} makes a vocabulary of "
                f"{self.vocabulary} tokens, {2**15} is the maximum; lower it"
            )


@dataclass(frozen=True, kw_only=True)
class SymbolTask(SyntheticTask):
    """A task whose answers are symbols of the sequence; the tokens below `FIRST_SYMBOL` are none.

    Attributes:
        symbols: number of different symbols.
        special: the word of each token that is no symbol.
    """

    special: ClassVar[tuple[str, str]]

    max_len: int = 128
    symbols: int = 16

    def __post_init__(self) -> None:
        self._derive(classes=self.symbols, vocabulary=FIRST_SYMBOL + self.symbols)
        self._require(symbols=2)

    def candidates(self, split: Split) -> Int[Tensor, "n c"]:
        """All symbols of the sequence."""
        symbols = split.sequences.long() - FIRST_SYMBOL
        return symbols.masked_fill(symbols < 0, NO_ANSWER)

    @override
    def word(self, token: int) -> str:
        number = token - FIRST_SYMBOL
        return self.class_name(number) if number >= 0 else self.special[token]

    def class_name(self, target: int) -> str:
        """`s` and the number of the symbol."""
        return f"s{target}"
