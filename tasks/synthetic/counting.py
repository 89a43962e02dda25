"""Sequences of random tokens: a sum, counts, and no question at all.

Adding: Hochreiter and Schmidhuber, 1997. One number is marked in each half of the sequence; an
answer is correct where its error is below 0.08. They require 0.04 of a target scaled to [0, 1];
here it is the sum, in [0, 2]. Deviation: the numbers lie on a grid over [0, 1], so that each is a
token.

Majority is a function of the counts of symbols, which depends on every token equally; which such
functions transformers of constant depth can compute: Hahn, 2020, arXiv 1906.06755.

A histogram has the count of each token at each of its positions: Weiss et al., 2021, arXiv
2106.06981. What softmax needs for it: Behrens et al., 2024, arXiv 2407.11542.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from tasks.answers import Number
from tasks.baselines import tokens
from tasks.contract import Baseline
from tasks.registry import tasks
from tasks.synthetic.base import Examples, Stream, SyntheticTask


@tasks.register("adding")
@dataclass(frozen=True, kw_only=True)
class Adding(SyntheticTask):
    """Token 1 + i is the number i / (levels - 1); the same number marked is `levels` higher.

    Attributes:
        max_len: numbers per example.
        levels: how many different numbers there are.
    """

    name = "adding"
    version = 2
    caveat = (
        "*bag of tokens* is the task: the sum is linear in how often each token occurs, and no "
        "information has to move between positions. The first 16 tokens give little more than the "
        "mean of train."
    )
    classes = 1
    vocabulary_option = "levels"
    answers = Number(tolerance=0.08)

    max_len: int = 128
    levels: int = 101

    def __post_init__(self) -> None:
        self._derive(vocabulary=1 + 2 * self.levels)
        self._require(max_len=2, levels=2)

    def draw(self, stream: Stream, count: int) -> Examples:
        numbers = stream.integers(self.levels, count, self.max_len)
        half = self.max_len // 2
        first, second = stream.integers(half, count), stream.integers(self.max_len - half, count)
        marked = np.stack([first, half + second], axis=1)
        addends = np.take_along_axis(numbers, marked, axis=1)
        sequences = 1 + numbers
        np.put_along_axis(sequences, marked, 1 + self.levels + addends, axis=1)
        return Examples(sequences, (addends.sum(1) / (self.levels - 1)).astype(np.float32))

    def word(self, token: int) -> str:
        marked, level = divmod(token - 1, self.levels)
        number = f"{level / (self.levels - 1):g}"
        return f"[{number}]" if marked else number


@tasks.register("majority")
@dataclass(frozen=True, kw_only=True)
class Majority(SyntheticTask):
    """The most frequent symbol; the lowest in case of a tie.

    Token 1 + i is the symbol i.

    Attributes:
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
        self._derive(classes=self.symbols, vocabulary=1 + self.symbols)
        self._require(max_len=1, symbols=2)

    def shallow_baselines(self) -> Mapping[str, Baseline]:
        counts = partial(tokens.bag_of_tokens, vocabulary=self.vocabulary)
        return {
            "same sequence in train": partial(tokens.same_in_train, tokens.sequences),
            "same counts in train": partial(tokens.same_in_train, counts),
        }

    def draw(self, stream: Stream, count: int) -> Examples:
        symbols = stream.integers(self.symbols, count, self.max_len)
        counts = np.stack([(symbols == symbol).sum(1) for symbol in range(self.symbols)], axis=1)
        return Examples(1 + symbols, counts.argmax(1))

    def word(self, token: int) -> str:
        return str(token - 1)


@tasks.register("histogram")
@dataclass(frozen=True, kw_only=True)
class Histogram(SyntheticTask):
    """How often the token of each position occurs in the sequence.

    Token 1 + i is the symbol i, class c is the count c + 1. Each symbol of a sequence occurs 1 to
    `most` times, with equal probability, and the last one until the sequence is full.

    Attributes:
        symbols: number of different symbols, at least `max_len`.
        most: the largest count, and the number of classes.
    """

    name = "histogram"
    version = 1
    caveat = (
        "Classes are unbalanced: a token that occurs 8 times has 8 positions. *majority* is right "
        "in about 20 %."
    )

    max_len: int = 64
    symbols: int = 64
    most: int = 8

    def __post_init__(self) -> None:
        self._derive(classes=self.most, vocabulary=1 + self.symbols)
        reason = f"the number of symbols that max_len={self.max_len} tokens can have"
        self._require(max_len=2, most=2, symbols=(self.max_len, reason))

    def draw(self, stream: Stream, count: int) -> Examples:
        counts = 1 + stream.integers(self.most, count, self.max_len)
        ends = np.minimum(counts.cumsum(1), self.max_len)
        is_end = np.zeros((count, self.max_len + 1), np.int64)
        np.put_along_axis(is_end, ends, 1, axis=1)
        owners = is_end[:, :-1].cumsum(1)
        order = stream.distinct(self.max_len, self.max_len, count)
        owners = np.take_along_axis(owners, order, axis=1)
        symbols = stream.distinct(self.max_len, self.symbols, count)
        counts = np.diff(ends, prepend=0)
        return Examples(
            1 + np.take_along_axis(symbols, owners, axis=1),
            np.take_along_axis(counts, owners, axis=1) - 1,
            np.broadcast_to(np.arange(self.max_len), owners.shape),
        )

    def word(self, token: int) -> str:
        return str(token - 1)

    def class_name(self, target: int) -> str:
        return str(target + 1)


@tasks.register("scaling")
@dataclass(frozen=True, kw_only=True)
class Scaling(SyntheticTask):
    """Random tokens and random classes: no model can exceed chance."""

    name = "scaling"
    version = 1
    caveat = "Classes are random: no rule and no model can exceed chance, which is 50 %."
    classes = 2
    vocabulary_option = "vocabulary"

    max_len: int = 1024
    vocabulary: int = 256
    causal: bool = False
    train: int = 256
    dev: int = 32
    test: int = 32

    def __post_init__(self) -> None:
        self._require(max_len=1, vocabulary=2)

    def draw(self, stream: Stream, count: int) -> Examples:
        sequences = 1 + stream.integers(self.vocabulary - 1, count, self.max_len)
        return Examples(sequences, stream.integers(self.classes, count))
