"""Copying: repeat the symbols that were shown, after a delay, or picked out of noise.

Hochreiter and Schmidhuber, 1997 (the delay); Gu and Dao, 2023, arXiv 2312.00752 (selective). Token
0 is blank, token 1 asks for the next symbol, from token 2 on stand the symbols. The answers are
never shown where they are asked for.
"""

from abc import abstractmethod

import numpy as np
from jaxtyping import Int
from torch import Tensor

from tasks.contract import Split
from tasks.registry import tasks
from tasks.synthetic.base import Examples, Stream, SyntheticTask
from zoo.registry import require_at_least

BLANK, ASK, FIRST = 0, 1, 2


class Shown(SyntheticTask):
    """`count` symbols among blanks, then `count` times the token that asks for the next of them."""

    def __init__(
        self,
        *,
        max_len: int = 128,
        symbols: int = 16,
        count: int = 16,
        causal: bool = True,
        train: int = 100_000,
        dev: int = 1_000,
        test: int = 2_000,
        seed: int = 0,
    ) -> None:
        """Choose the setting.

        Args:
            max_len: tokens of every example.
            symbols: number of different symbols.
            count: symbols to be repeated.
            causal: whether the model is.
            train: examples in the split of that name.
            dev: the same.
            test: the same.
            seed: decides every draw.

        Raises:
            UserError: an option is out of its range.
        """
        self.max_len, self.symbols, self.count, self.causal = max_len, symbols, count, causal
        self.train, self.dev, self.test, self.seed = train, dev, test, seed
        self.classes, self.vocabulary = symbols, FIRST + symbols
        self.require(symbols=2, count=1)
        require_at_least(2 * count, self.name, f"2 for each of count={count}", max_len=max_len)

    def draw(self, stream: Stream, rows: int) -> Examples:
        """See `Drawn.draw`."""
        targets = stream.integers(self.symbols, rows, self.count)
        sequences = np.full((rows, self.max_len), BLANK, np.int64)
        np.put_along_axis(sequences, self.places(stream, rows), FIRST + targets, axis=1)
        sequences[:, -self.count :] = ASK
        target_positions = np.arange(self.max_len - self.count, self.max_len)
        return Examples(sequences, targets, np.broadcast_to(target_positions, targets.shape))

    def candidates(self, split: Split) -> Int[Tensor, "n c"]:
        """See `Task.candidates`: the symbols to be repeated."""
        sequences = split.sequences.long()
        return sequences[sequences >= FIRST].view(len(split), self.count) - FIRST

    def word(self, token: int) -> str:
        """See `Task.word`."""
        return {BLANK: "blank", ASK: "ask"}.get(token) or self.label(token - FIRST)

    def label(self, target: int) -> str:
        """See `Task.label`: `s`, and the number of the symbol."""
        return f"s{target}"

    @abstractmethod
    def places(self, stream: Stream, rows: int) -> Int[np.ndarray, "rows count"]:
        """Where each symbol is shown, ascending."""


@tasks.register("copying")
class Copying(Shown):
    """The symbols come first, and are asked for after a delay."""

    name = "copying"
    version = 1

    def places(self, stream: Stream, rows: int) -> Int[np.ndarray, "rows count"]:
        """See `Shown.places`."""
        return np.broadcast_to(np.arange(self.count), (rows, self.count))


@tasks.register("selective-copying")
class SelectiveCopying(Shown):
    """The symbols are scattered among the blanks, in the order in which they are asked."""

    name = "selective-copying"
    version = 1

    def places(self, stream: Stream, rows: int) -> Int[np.ndarray, "rows count"]:
        """See `Shown.places`."""
        return np.sort(stream.distinct(self.count, self.max_len - self.count, rows), axis=1)
