"""Recall: what followed this token when it was seen before?"""

import numpy as np
from jaxtyping import Int
from torch import Tensor

from tasks.contract import Split
from tasks.registry import tasks
from tasks.synthetic.base import Examples, Stream, SyntheticTask
from zoo.registry import UserError, require_at_least

SPECIAL, FIRST = 1, 2

EXPONENT = 0.01
"""Of the power law by which MQAR's queries thin out with their distance from the pairs."""


@tasks.register("induction")
class Induction(SyntheticTask):
    """Random symbols, among them the special token once, and again at the end.

    The answer is the symbol that followed it. Olsson et al., 2022, arXiv 2209.11895, in the form of
    Gu and Dao, 2023, arXiv 2312.00752.
    """

    name = "induction"
    version = 1

    def __init__(
        self,
        *,
        max_len: int = 128,
        symbols: int = 16,
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
            causal: whether the model is.
            train: examples in the split of that name.
            dev: the same.
            test: the same.
            seed: decides every draw.

        Raises:
            UserError: an option is out of its range.
        """
        self.max_len, self.symbols, self.causal = max_len, symbols, causal
        self.train, self.dev, self.test, self.seed = train, dev, test, seed
        self.classes, self.vocabulary = symbols, FIRST + symbols
        self.require(max_len=3, symbols=2)

    def draw(self, stream: Stream, rows: int) -> Examples:
        """See `Drawn.draw`."""
        symbols = stream.integers(self.symbols, rows, self.max_len)
        special = stream.integers(self.max_len - 2, rows)
        targets = symbols[np.arange(rows), special + 1]
        sequences = FIRST + symbols
        sequences[np.arange(rows), special] = SPECIAL
        sequences[:, -1] = SPECIAL
        target_positions = np.full((rows, 1), self.max_len - 1)
        return Examples(sequences, targets[:, None], target_positions)

    def candidates(self, split: Split) -> Int[Tensor, "n c"]:
        """See `Task.candidates`: all symbols."""
        sequences = split.sequences.long()
        return sequences[sequences >= FIRST].view(len(split), self.max_len - 2) - FIRST

    def word(self, token: int) -> str:
        """See `Task.word`."""
        return "special" if token == SPECIAL else self.label(token - FIRST)

    def label(self, target: int) -> str:
        """See `Task.label`: `s`, and the number of the symbol."""
        return f"s{target}"


@tasks.register("mqar")
class MultiQueryRecall(SyntheticTask):
    """Multi-query associative recall: key-value pairs, then every key once more as a query.

    Arora et al., 2023, arXiv 2312.04927. Token 0 is never shown; keys are the lower half of the
    vocabulary, values the upper. Behind the pairs a query stands at every second place at most, the
    places drawn by a power law. A query asks for the value of its key. The rest is random tokens,
    but neither a key nor a value of the example: a key stands in its pair and where it is asked,
    and its value in the pair alone.

    Deviations: Arora et al. fill with any token, 0 too, so that a key or an answer may be shown
    once more; their answer is one of all tokens, here it is one of the values.
    """

    name = "mqar"
    version = 2
    alphabet = "vocabulary"

    def __init__(
        self,
        *,
        max_len: int = 128,
        pairs: int = 8,
        vocabulary: int = 8_192,
        causal: bool = True,
        train: int = 100_000,
        dev: int = 1_000,
        test: int = 2_000,
        seed: int = 0,
    ) -> None:
        """Choose the setting.

        Args:
            max_len: tokens of every example.
            pairs: key-value pairs, and queries, of an example.
            vocabulary: number of token values.
            causal: whether the model is.
            train: examples in the split of that name.
            dev: the same.
            test: the same.
            seed: decides every draw.

        Raises:
            UserError: an option is out of its range.
        """
        self.max_len, self.pairs, self.vocabulary, self.causal = max_len, pairs, vocabulary, causal
        self.train, self.dev, self.test, self.seed = train, dev, test, seed
        if vocabulary % 2:
            raise UserError(f"mqar.vocabulary={vocabulary} must be even; add one")
        self.classes = vocabulary // 2
        self.require(pairs=1)
        require_at_least(4 * pairs, self.name, f"4 for each of pairs={pairs}", max_len=max_len)
        # Beside token 0, keys and values one token at least is left to fill with.
        why = f"2 for each of pairs={pairs} and 2 more"
        require_at_least(2 * pairs + 2, self.name, why, vocabulary=vocabulary)

    def draw(self, stream: Stream, rows: int) -> Examples:
        """See `Drawn.draw`."""
        keys = 1 + stream.distinct(self.pairs, self.classes - 1, rows)
        values = stream.distinct(self.pairs, self.classes, rows)
        pairs = np.stack([keys, self.classes + values], axis=2).reshape(rows, -1)
        sequences = self._others(stream, pairs)
        sequences[:, : 2 * self.pairs] = pairs
        target_positions = 2 * self.pairs + 2 * self._gaps(stream, rows)
        np.put_along_axis(sequences, target_positions, keys, axis=1)
        return Examples(sequences, values, target_positions)

    def candidates(self, split: Split) -> Int[Tensor, "n c"]:
        """See `Task.candidates`: the values of the pairs."""
        return split.sequences[:, 1 : 2 * self.pairs : 2].long() - self.classes

    def word(self, token: int) -> str:
        """See `Task.word`: `k` and the number of a key, or `v` and that of a value."""
        return f"k{token}" if token < self.classes else self.label(token - self.classes)

    def label(self, target: int) -> str:
        """See `Task.label`."""
        return f"v{target}"

    def _others(
        self, stream: Stream, tokens: Int[np.ndarray, "rows shown"]
    ) -> Int[np.ndarray, "rows l"]:
        """Tokens from 1 on, none of them in the same row of `tokens`."""
        free = self.vocabulary - 1 - tokens.shape[1]
        # 16 bits hold every token, and take a quarter of the time.
        found = 1 + stream.integers(free, len(tokens), self.max_len).astype(np.int16)
        for taken in np.sort(tokens.astype(np.int16), axis=1).T[..., None]:
            found += found >= taken
        return found.astype(np.int64)

    def _gaps(self, stream: Stream, rows: int) -> Int[np.ndarray, "rows pairs"]:
        """Which second place behind the pairs each query takes, all different."""
        gaps = np.arange(1, (self.max_len - 2 * self.pairs) // 2 + 1)
        weights = gaps ** (EXPONENT - 1)
        # The smallest of exponential clocks that run at these rates: a weighted draw without
        # replacement (Efraimidis and Spirakis, 2006).
        clocks = -np.log1p(-stream.uniform(rows, len(gaps))) / weights
        return clocks.argsort(1, kind="stable")[:, : self.pairs]
