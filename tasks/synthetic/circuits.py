"""Circuits: functions that need every token, and none more than another.

What transformers of constant depth can count, and what not: Hahn, 2020, arXiv 1906.06755. Token
1 + i is the symbol i.
"""

from abc import abstractmethod

import numpy as np
from jaxtyping import Int

from tasks.registry import tasks
from tasks.synthetic.base import Examples, Stream, SyntheticTask


class Circuit(SyntheticTask):
    """A function of how often each symbol occurs."""

    def __init__(
        self,
        *,
        max_len: int = 64,
        symbols: int = 2,
        train: int = 100_000,
        dev: int = 1_000,
        test: int = 2_000,
        seed: int = 0,
    ) -> None:
        """Choose the setting.

        Args:
            max_len: tokens of every example.
            symbols: number of different symbols, and of classes.
            train: examples in the split of that name.
            dev: the same.
            test: the same.
            seed: decides every draw.

        Raises:
            UserError: an option is out of its range.
        """
        self.max_len, self.symbols = max_len, symbols
        self.train, self.dev, self.test, self.seed = train, dev, test, seed
        self.classes, self.vocabulary = symbols, 1 + symbols
        self.require(max_len=1, symbols=2)

    @abstractmethod
    def value(self, symbols: Int[np.ndarray, "n l"]) -> Int[np.ndarray, " n"]:
        """The class of each row."""

    def draw(self, stream: Stream, rows: int) -> Examples:
        """See `Drawn.draw`."""
        symbols = stream.integers(self.symbols, rows, self.max_len)
        return Examples(1 + symbols, self.value(symbols))

    def word(self, token: int) -> str:
        """See `Task.word`: the number of the symbol, as that of its class."""
        return str(token - 1)


@tasks.register("majority")
class Majority(Circuit):
    """Which symbol is the commonest; the lowest of equals."""

    name = "majority"
    version = 1

    def value(self, symbols: Int[np.ndarray, "n l"]) -> Int[np.ndarray, " n"]:
        """See `Circuit.value`."""
        counts = np.stack([(symbols == one).sum(1) for one in range(self.symbols)], axis=1)
        return counts.argmax(1)


@tasks.register("parity")
class Parity(Circuit):
    """The sum of the symbols, modulo their number: with two of them, the parity of the ones."""

    name = "parity"
    version = 1

    def value(self, symbols: Int[np.ndarray, "n l"]) -> Int[np.ndarray, " n"]:
        """See `Circuit.value`."""
        return symbols.sum(1) % self.symbols
