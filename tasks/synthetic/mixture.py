"""Recall of easy and hard examples: mixtures of `mqar`, from a few pairs to many."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tasks.answers import SomeClasses
from tasks.contract import NO_ANSWER, SPLITS, Baseline, Split, SplitName
from tasks.registry import tasks
from tasks.synthetic.base import Examples, Stream, SyntheticTask
from tasks.synthetic.recall import MultiQueryRecall
from zoo.registry import UserError, require_at_least

RUNG = re.compile(r"(\d{1,5})/(\d{1,6})(?:x(\d{1,3}))?")


class Rung(NamedTuple):
    """Examples of one size, and their share: of all, as many as `weight` says."""

    pairs: int
    tokens: int
    weight: int = 1

    @property
    def name(self) -> str:
        return f"{self.pairs} pairs in {self.tokens}"


def rungs(text: str, option: str) -> tuple[Rung, ...]:
    # `4/32x2,32/128`; without a weight it is 1.
    found = [RUNG.fullmatch(part) for part in text.split(",")]
    if not all(found):
        raise UserError(f"recall.{option}={text}: give PAIRS/TOKENS,..., as 4/32x2,32/128")
    return tuple(Rung(*(int(n or 1) for n in match.groups())) for match in found if match)


@tasks.register("recall")
@dataclass(frozen=True, kw_only=True)
class Recall(SyntheticTask):
    """Multi-query recall of several numbers of pairs: easy examples among the hard ones.

    Arora et al., 2024 (Based), arXiv 2402.18668, train on such a mixture: 4 to 64 pairs. An example
    is one of `mqar`, see there, followed by padding. Test has as many examples of each rung;
    `probes` has each rung alone, and those of `beyond`, on which nothing is trained.

    Attributes:
        mixture: the rungs of train, dev and test, PAIRS/TOKENSxWEIGHT: weights are shares of train.
        beyond: further rungs of the probes; empty for none.
        probe: examples of each probe.
    """

    name = "recall"
    version = 1
    vocabulary_option = "vocabulary"
    answers = SomeClasses()
    caveat = (
        "A rule that does not look for the key of a query answers one of p pairs at random, which "
        "is right in 100 / p %: in a quarter at 4 pairs. Only the accuracy at many pairs shows how "
        "much is stored."
    )

    mixture: str = "4/32x2,8/64x2,16/64x2,32/128"
    beyond: str = ""
    vocabulary: int = 256
    causal: bool = True
    probe: int = 500

    def __post_init__(self) -> None:
        longest = max(rung.tokens for rung in self.probed)
        self._derive(classes=self.vocabulary // 2, max_len=longest)
        self._require(probe=1)
        for rung in self.probed:
            self._problem(rung)

    @cached_property
    def trained(self) -> tuple[Rung, ...]:
        return rungs(self.mixture, "mixture")

    @cached_property
    def probed(self) -> tuple[Rung, ...]:
        return (*self.trained, *(rungs(self.beyond, "beyond") if self.beyond else ()))

    def length(self, split: SplitName) -> int:
        return max(rung.tokens for rung in self.trained)

    def load(self, split: SplitName) -> Split:
        equal = ",".join(f"{rung.pairs}/{rung.tokens}" for rung in self.trained)
        task = self if split == "train" else replace(self, mixture=equal)
        return SyntheticTask.load(task, split)

    def draw(self, stream: Stream, count: int) -> Examples:
        # In the shares of the mixture: training shuffles the examples.
        weights = [rung.weight for rung in self.trained]
        ends = [count * sum(weights[: n + 1]) // sum(weights) for n in range(len(weights))]
        counts = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        length, most = self.length("train"), max(rung.pairs for rung in self.trained)
        parts = [
            self._problem(rung).draw(stream, number)
            for rung, number in zip(self.trained, counts, strict=True)
        ]
        return Examples(
            np.concatenate([_padded(part.sequences, length, 0) for part in parts]),
            np.concatenate([_padded(part.targets, most, NO_ANSWER) for part in parts]),
            np.concatenate([_padded(part.target_positions, most, 0) for part in parts]),
            np.repeat([rung.tokens for rung in self.trained], counts),
        )

    def groups(self, split: Split) -> Mapping[str, Bool[Tensor, " n"]]:
        pairs, tokens = self.answers.counted(split.targets).sum(1), split.example_lengths()
        return {r.name: (pairs == r.pairs) & (tokens == r.tokens) for r in self.trained}

    def probes(self) -> Mapping[str, Split]:
        return {
            rung.name: self.split_of(self._problem(rung).draw(Stream(self.seed, n), self.probe))
            for n, rung in enumerate(self.probed, len(SPLITS))
        }

    def candidates(self, split: Split) -> Int[Tensor, "n c"]:
        writes = self._smallest.writes
        most = split.targets.shape[1] * writes
        values = split.sequences[:, 1 : 2 * most : 2].long() - self.classes
        pairs = self.answers.counted(split.targets).sum(1, keepdim=True) * writes
        return values.masked_fill(torch.arange(most) >= pairs, NO_ANSWER)

    def word(self, token: int) -> str:
        return self._smallest.word(token)

    def class_name(self, target: int) -> str:
        return f"v{target}"

    @cached_property
    def _smallest(self) -> MultiQueryRecall:
        return self._problem(self.trained[0])

    def _problem(self, rung: Rung) -> MultiQueryRecall:
        return MultiQueryRecall(
            max_len=rung.tokens, pairs=rung.pairs, vocabulary=self.vocabulary, causal=self.causal
        )


@dataclass(frozen=True, kw_only=True)
class Rewritten(MultiQueryRecall):
    # `mqar` whose keys each occur in several pairs, in random order, with other values.
    writes: int = 2  # type: ignore[misc]


@tasks.register("overwrite")
@dataclass(frozen=True, kw_only=True)
class Overwrite(Recall):
    """Recall of keys that are written several times: the last value counts.

    A memory that adds values and erases none holds all of them: it splits erasing from adding.

    Attributes:
        writes: pairs of each key.
    """

    name = "overwrite"
    version = 1
    caveat = (
        "A rule that finds the key and takes any of its values is right in 100 / writes %: only a "
        "higher accuracy shows that values are overwritten."
    )

    mixture: str = "4/32x4,8/64x4,16/128x2"
    writes: int = 2

    def __post_init__(self) -> None:
        require_at_least(2, "overwrite", writes=self.writes)
        super().__post_init__()

    def shallow_baselines(self) -> Mapping[str, Baseline]:
        return {"any value of the key": lambda _: 1 / self.writes}

    def _problem(self, rung: Rung) -> MultiQueryRecall:
        return Rewritten(
            max_len=rung.tokens, pairs=rung.pairs, writes=self.writes, vocabulary=self.vocabulary,
            causal=self.causal,
        )  # fmt: skip


def _padded(values: Any, width: int, value: int) -> Int[np.ndarray, "n width"]:
    return np.pad(values, ((0, 0), (0, width - values.shape[1])), constant_values=value)
