"""Tasks whose examples are drawn from a seed whenever they are wanted: nothing is kept.

Every draw goes back to `Generator.random` alone, whose stream NumPy keeps.
"""

from abc import abstractmethod
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int, Shaped

from tasks.answers import CLASSES, Answers
from tasks.contract import SPLITS, Split, SplitName, Task
from zoo.registry import UserError, require_at_least

SHUFFLED = 2**20
"""Integers that are shuffled at a time: a few dozen megabytes."""


class Stream:
    """Uniform draws of one split."""

    def __init__(self, seed: int, number: int) -> None:
        """Begin the stream `number` of those that `seed` gives."""
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

        Memory stays bounded, but for the result. A row of independent draws is without repetition
        with probability exp(-count**2 / 2 / bound): where that is rare, all integers are shuffled.
        """
        if bound <= 4 * count or count**2 > 8 * bound:
            return self._shuffled(count, bound, rows)
        drawn = self.integers(bound, rows, count)
        # Rows that hold an integer twice are drawn anew, whole.
        while len(again := _repeating(drawn)):
            drawn[again] = self.integers(bound, len(again), count)
        return drawn

    def _shuffled(self, count: int, bound: int, rows: int) -> Int[np.ndarray, "rows count"]:
        found = np.empty((rows, count), np.int64)
        step = max(1, SHUFFLED // bound)
        for first in range(0, rows, step):
            keys = self.uniform(min(step, rows - first), bound)
            found[first : first + step] = keys.argsort(1, kind="stable")[:, :count]
        return found


def _repeating(rows: Int[np.ndarray, "rows count"]) -> Int[np.ndarray, " repeating"]:
    ordered = np.sort(rows, axis=1)
    return np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(1))


class Examples(NamedTuple):
    """What is drawn.

    Attributes:
        sequences: (n, l), tokens, none of them padding.
        targets: (n,) or (n, a), the answers.
        target_positions: (n, a), the positions that are asked; None where the whole is.
    """

    sequences: Int[np.ndarray, "n l"]
    targets: Shaped[np.ndarray, "n ..."]
    target_positions: Int[np.ndarray, "n a"] | None = None


class SyntheticTask(Task):
    """A task that draws its examples; it keeps its options, `seed` and the splits' sizes too.

    Attributes:
        alphabet: the option that decides how many token values there are.
    """

    alphabet: str = "symbols"
    answers: Answers = CLASSES
    seed: int
    train: int
    dev: int
    test: int

    @abstractmethod
    def draw(self, stream: Stream, rows: int) -> Examples:
        """Draw as many examples."""

    def load(self, split: SplitName) -> Split:
        """See `Task.load`."""
        count = getattr(self, split)
        sequences, targets, target_positions = self.draw(
            Stream(self.seed, SPLITS.index(split)), count
        )
        kind = np.uint8 if self.vocabulary <= 2**8 else np.int16
        return Split.single(
            torch.from_numpy(sequences.astype(kind)),
            torch.full((count,), self.max_len, dtype=torch.int32),
            torch.from_numpy(targets),
            None
            if target_positions is None
            else torch.from_numpy(target_positions.astype(np.int32)),
            self.answers,
        )

    def require(self, **least: int) -> None:
        """Refuse options below their bounds; the sizes of the splits and `seed` have theirs here.

        Raises:
            UserError: an option is out of its range.
        """
        for option, bound in {**least, "train": 1, "dev": 1, "test": 1, "seed": 0}.items():
            require_at_least(bound, self.name, **{option: getattr(self, option)})
        # Tokens are kept in 16 bits.
        if self.vocabulary > 2**15:
            raise UserError(
                f"{self.name}.{self.alphabet}={getattr(self, self.alphabet)} makes "
                f"{self.vocabulary} token values, {2**15} are the most; lower it"
            )
