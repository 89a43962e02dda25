"""Copying: repeat the given symbols, after a delay or selected from among noise.

Hochreiter and Schmidhuber, 1997 (delay); Gu and Dao, 2023, arXiv 2312.00752 (selective). Token 0 is
blank, token 1 requests the next symbol, tokens from 2 on are the symbols. The input at the target
positions never contains the answers.
"""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from tasks.registry import tasks
from tasks.synthetic.base import FIRST_SYMBOL, Examples, Stream, SymbolTask

BLANK, REQUEST = 0, 1


@dataclass(frozen=True, kw_only=True)
class CopyTask(SymbolTask):
    """`count` symbols among blanks, then `count` times the token that requests the next of them.

    Attributes:
        count: symbols to repeat.
    """

    special = ("blank", "request")

    count: int = 16
    causal: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(count=1, max_len=(2 * self.count, f"2 for each of count={self.count}"))

    def draw(self, stream: Stream, count: int) -> Examples:
        targets = stream.integers(self.symbols, count, self.count)
        sequences = np.full((count, self.max_len), BLANK, np.int64)
        positions = self.symbol_positions(stream, count)
        np.put_along_axis(sequences, positions, FIRST_SYMBOL + targets, axis=1)
        sequences[:, -self.count :] = REQUEST
        target_positions = np.arange(self.max_len - self.count, self.max_len)
        return Examples(sequences, targets, np.broadcast_to(target_positions, targets.shape))

    @abstractmethod
    def symbol_positions(self, stream: Stream, count: int) -> Int[np.ndarray, "n count"]:
        """The positions of the symbols in each example, ascending."""


@tasks.register("copying")
class Copying(CopyTask):
    """The symbols come first; the model repeats them after a delay."""

    name = "copying"
    version = 1
    caveat = (
        "The answer is at a fixed distance, so that *by position of the query* is the task: it "
        "moves tokens, and selects none by what they are."
    )

    def symbol_positions(self, stream: Stream, count: int) -> Int[np.ndarray, "n count"]:
        return np.broadcast_to(np.arange(self.count), (count, self.count))


@tasks.register("selective-copying")
class SelectiveCopying(CopyTask):
    """The symbols are scattered among the blanks; the model repeats them in their order."""

    name = "selective-copying"
    version = 1
    caveat = (
        "The k-th symbol is more often at some positions than at others. The symbol at those, *by "
        "position of the query*, is right without any symbol before it being counted: in 73 % at "
        "32 tokens with 4 of 8 symbols, and 40 % at the defaults."
    )

    def symbol_positions(self, stream: Stream, count: int) -> Int[np.ndarray, "n count"]:
        return np.sort(stream.distinct(self.count, self.max_len - self.count, count), axis=1)
