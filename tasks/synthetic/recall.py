"""Recall: which token followed this one earlier in the sequence?"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Int
from torch import Tensor

from tasks.baselines import context
from tasks.contract import NO_ANSWER, Baseline, Split
from tasks.registry import tasks
from tasks.synthetic.base import FIRST_SYMBOL, Examples, Stream, SymbolTask, SyntheticTask
from zoo.registry import UserError

SPECIAL = 1  # Induction's token between symbols; its token 0 does not occur


@tasks.register("induction")
@dataclass(frozen=True, kw_only=True)
class Induction(SymbolTask):
    """Random symbols with special tokens once among them, and one of these again at the end.

    The answer is the symbol that followed its first occurrence. Olsson et al., 2022, arXiv
    2209.11895, in the form of Gu and Dao, 2023, arXiv 2312.00752, with one special token. There the
    answer is in the set of adjacent pairs of tokens, so that a linear model of that set needs no
    attention. With several special tokens the set does not tell which of them is queried.

    Attributes:
        specials: number of special tokens.
    """

    name = "induction"
    version = 1
    special = ("", "special")
    caveat = (
        "The baselines *after a special token* find the specials and do not compare them with the "
        "query: at 32 tokens and 4 specials the most frequent symbol after one is right in 34 %. "
        "With one special, the default, they are the task: no query has to be matched."
    )

    specials: int = 1
    causal: bool = True

    def __post_init__(self) -> None:
        # All but the first special token follow the symbols.
        self._derive(classes=self.symbols)
        self._derive(vocabulary=FIRST_SYMBOL + self.symbols + self.specials - 1)
        least = 2 * self.specials + 1, f"2 for each of specials={self.specials} and 1 more"
        self._require(symbols=2, specials=1, max_len=least)

    def draw(self, stream: Stream, count: int) -> Examples:
        symbols = stream.integers(self.symbols, count, self.max_len)
        # A symbol follows each special token, before the last position.
        if self.specials == 1:
            positions = stream.integers(self.max_len - 2, count)[:, None]
        else:
            pairs, spare = divmod(self.max_len - 1, 2)
            positions = 2 * stream.distinct(self.specials, pairs, count)
            positions += stream.integers(spare + 1, count, 1)
        tokens = np.arange(self.specials) + FIRST_SYMBOL + self.symbols - 1
        tokens[0] = SPECIAL
        sequences = FIRST_SYMBOL + symbols
        np.put_along_axis(sequences, positions, np.tile(tokens, (count, 1)), axis=1)
        sequences[:, -1] = SPECIAL
        queried = np.zeros(count, np.int64)
        if self.specials > 1:
            queried = stream.integers(self.specials, count)
            sequences[:, -1] = tokens[queried]
        targets = symbols[np.arange(count), positions[np.arange(count), queried] + 1]
        return Examples(sequences, targets[:, None], np.full((count, 1), self.max_len - 1))

    def candidates(self, split: Split) -> Int[Tensor, "n c"]:
        return super().candidates(split).masked_fill(self._is_special(split), NO_ANSWER)

    def shallow_baselines(self) -> Mapping[str, Baseline]:
        return {
            "random after a special token": partial(context.random, self._following),
            "most frequent after a special token": partial(
                context.most_frequent, self._following, classes=self.classes
            ),
        }

    def _is_special(self, split: Split) -> Bool[Tensor, "n l"]:
        tokens = split.sequences.long()
        return (tokens == SPECIAL) | (tokens >= FIRST_SYMBOL + self.symbols)

    def _following(self, split: Split) -> Int[Tensor, "n l"]:
        before = self._is_special(split).roll(1, 1)
        before[:, 0] = False
        return self.candidates(split).masked_fill(~before, NO_ANSWER)

    def word(self, token: int) -> str:
        number = token - FIRST_SYMBOL - self.symbols
        return f"special{number + 2}" if number >= 0 else super().word(token)


@tasks.register("mqar")
@dataclass(frozen=True, kw_only=True)
class MultiQueryRecall(SyntheticTask):
    """Multi-query associative recall: key-value pairs, then every key once more as a query.

    Arora et al., 2023, arXiv 2312.04927, section 4 and figure 2. Keys are the tokens from 1 on in
    the lower half of the vocabulary, values the upper half. After the pairs, queries take every
    second position at most, drawn by a power law. The target of a query is the value of its key.
    All other positions hold token 0, as in the published experiments. With `filler=random` they
    hold random tokens other than 0 and the example's keys and values.

    The published grid is vocabulary=8192 with (max_len, pairs) of (64, 4), (128, 8), (256, 16) and
    (512, 64), causal. Deviations: an answer is one of the values, half of the vocabulary, where the
    published model chooses among all tokens; the published code requires a vocabulary above
    `max_len`; its random filler is any token, so that a key or an answer may occur once more; it
    gives the first key the slot that was drawn first (see `caveat`).

    Attributes:
        pairs: key-value pairs, and queries, per example.
        filler: what the positions hold that are neither a pair nor a query: zero or random.
    """

    name = "mqar"
    version = 4
    vocabulary_option = "vocabulary"
    caveat = (
        "A rule that does not look for the key of a query answers one of p pairs at random, which "
        "is right in 100 / p %. Neither the rank nor the position of a query says more, as the "
        "keys are permuted over the slots. Up to version 3, as in the published generator "
        "(zoology), the first key had the slot that was drawn first, which is near the pairs: at 4 "
        "pairs in 64 tokens the rank of a query gave 28 % and its position 29 %, in place of 25 %."
    )

    writes: ClassVar[int] = 1  # pairs of each key

    max_len: int = 128
    pairs: int = 8
    vocabulary: int = 8_192
    filler: Literal["zero", "random"] = "zero"
    causal: bool = True

    @property
    def written(self) -> int:
        return self.pairs * self.writes

    def __post_init__(self) -> None:
        pairs, vocabulary = self.pairs, self.vocabulary
        if vocabulary % 2:
            raise UserError(f"mqar.vocabulary={vocabulary} must be even; add one")
        self._derive(classes=vocabulary // 2)
        # Token 0 is no key. So at least one token is left for a random filler.
        written = self.written
        each = f"pairs={pairs}" if self.writes == 1 else f"pairs={pairs} x writes={self.writes}"
        least = 2 * written + 2, f"2 for each of {each} and 2 more"
        more = "4 for each of" if self.writes == 1 else "2 for each query, and 2 for each of"
        tokens = 2 * written + 2 * pairs, f"{more} {each}"
        self._require(pairs=1, max_len=tokens, vocabulary=least)

    def draw(self, stream: Stream, count: int) -> Examples:
        keys = 1 + stream.distinct(self.pairs, self.classes - 1, count)
        written, values = keys, stream.distinct(self.written, self.classes, count)
        if self.writes > 1:
            order = stream.distinct(self.written, self.written, count) % self.pairs
            written = np.take_along_axis(keys, order, axis=1)
        pairs = np.stack([written, self.classes + values], axis=2).reshape(count, -1)
        if self.writes > 1:
            last = written[:, None, ::-1] == keys[..., None]
            values = np.take_along_axis(values[:, ::-1], last.argmax(2), axis=1)
        sequences = np.zeros((count, self.max_len), np.int64)
        if self.filler == "random":  # tokens from 1 on, none of them in the pairs of the example
            free = self.vocabulary - 1 - pairs.shape[1]
            # 16 bits hold every token, and take a quarter of the time.
            others = 1 + stream.integers(free, count, self.max_len).astype(np.int16)
            for used in np.sort(pairs.astype(np.int16), axis=1).T[..., None]:
                others += others >= used
            sequences[:] = others
        start = pairs.shape[1]
        sequences[:, :start] = pairs
        # Slots come in the order of their draws, the dense ones first: no key may go with a draw.
        order = stream.distinct(self.pairs, self.pairs, count)
        # Slot i is position 2 i after the pairs; its weight is x^(a - 1) with the published a =
        # 0.01, x the distance to the pairs.
        slots = np.arange(1, (self.max_len - start) // 2 + 1)
        # The smallest of exponential variables of these rates: a weighted draw without replacement
        # (Efraimidis and Spirakis, 2006).
        times = -np.log1p(-stream.uniform(count, len(slots))) / slots ** (0.01 - 1)
        chosen = times.argsort(1, kind="stable")[:, : self.pairs]
        target_positions = start + 2 * np.take_along_axis(chosen, order, axis=1)
        np.put_along_axis(sequences, target_positions, keys, axis=1)
        return Examples(sequences, values, target_positions)

    def candidates(self, split: Split) -> Int[Tensor, "n c"]:
        return split.sequences[:, 1 : 2 * self.written : 2].long() - self.classes

    def word(self, token: int) -> str:
        if token == 0:
            return "0"
        return f"k{token}" if token < self.classes else self.class_name(token - self.classes)

    def class_name(self, target: int) -> str:
        return f"v{target}"
