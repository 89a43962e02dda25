"""Majority: a function of the counts of symbols, which depends on every token equally.

Which such functions transformers of constant depth can compute: Hahn, 2020, arXiv 1906.06755.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from tasks.baselines import tokens
from tasks.baselines.lookup import same_in_train, sequences
from tasks.contract import Baseline
from tasks.registry import tasks
from tasks.synthetic.base import Examples, Stream, SyntheticTask


@tasks.register("majority")
@dataclass(frozen=True, kw_only=True)
class Majority(SyntheticTask):
    """The most frequent symbol; the lowest in case of a tie.

    Token 1 + i is the symbol i.

    Attributes:
        max_len: tokens per example.
        symbols: number of different symbols, and of classes.
    """

    name = "majority"
    version = 1
    caveat = (
        "A linear model of the counts, *bag of tokens*, is the task: tokens have to be counted, "
        "not compared. A table of the counts in train, *same counts in train*, is another way."
    )

    max_len: int = 64
    symbols: int = 2

    def __post_init__(self) -> None:
        """Raise UserError where an option is out of range."""
        self._derive(classes=self.symbols, vocabulary=1 + self.symbols)
        self._require(max_len=1, symbols=2)

    def shallow_baselines(self) -> Mapping[str, Baseline]:
        """See `Task.shallow_baselines`: the class of the same sequence, and of the same counts."""
        counts = partial(tokens.bag_of_tokens, vocabulary=self.vocabulary)
        return {
            "same sequence in train": partial(same_in_train, sequences),
            "same counts in train": partial(same_in_train, counts),
        }

    def draw(self, stream: Stream, count: int) -> Examples:
        """See `SyntheticTask.draw`."""
        symbols = stream.integers(self.symbols, count, self.max_len)
        counts = np.stack([(symbols == symbol).sum(1) for symbol in range(self.symbols)], axis=1)
        return Examples(1 + symbols, counts.argmax(1))

    def word(self, token: int) -> str:
        """See `Task.word`: the number of the symbol, and of its class."""
        return str(token - 1)
