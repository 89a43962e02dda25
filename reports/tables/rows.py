"""A row: the runs of one variant on a board."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from harness.records.interval import Interval, in_unit, interval, interval_of
from harness.records.outcome import Final
from harness.records.record import Cost, Metric, Record
from harness.records.sample import Sample
from harness.records.spec import RunSpec
from reports.text import plain

Key = TypeVar("Key")
Run = TypeVar("Run")

REASON = 200
"""The most characters of a reason in a table; the record has the complete reason."""


CACHED = ("sample", "compared", "score")
"""Properties of a row that are computed once, since they read all of its answers."""


@dataclass(frozen=True)
class Standing:
    """How a row compares with the other rows and the baselines of its board.

    Attributes:
        tiers: its tiers, from 1; rows that share one are ties. Empty where it is not compared.
        not_compared: what the row has that keeps it from a tier; empty where nothing does.
        best: probability that it has the best score of the rows compared; None likewise.
        beats_baselines: whether its score is better than that of every baseline; None for a
            baseline, without a score, and where there is no baseline.
        at_baseline: runs whose score is no better than that of the strongest baseline; None
            likewise.
    """

    tiers: tuple[int, ...] = ()
    not_compared: str = ""
    best: float | None = None
    beats_baselines: bool | None = None
    at_baseline: int | None = None


@dataclass(frozen=True)
class Row:
    """Runs of one variant with one set of options, which differ by seed only.

    Attributes:
        label: the variant's name, and options that distinguish it from other rows of the name.
        runs: one for each seed, in order of seed.
        standing: on its board; unknown for a row that is on none.
    """

    label: str
    runs: tuple[Record, ...]
    standing: Standing = Standing()

    @property
    def spec(self) -> RunSpec:
        """The specification of the first run: all agree on everything but the seed."""
        return self.runs[0].spec

    @property
    def finals(self) -> list[Final]:
        """Outcomes of the runs that finished."""
        return [run.final for run in self.runs if run.final]

    @property
    def without_attention(self) -> bool:
        """Whether it is a baseline: a model that uses no attention."""
        return self.runs[-1].is_baseline

    def with_standing(self, standing: Standing) -> "Row":
        """The same row with a standing; what was computed from its answers is kept."""
        row = replace(self, standing=standing)
        vars(row).update({name: vars(self)[name] for name in CACHED if name in vars(self)})
        return row

    @property
    def metric(self) -> Metric:
        """What its scores are."""
        return self.runs[0].metric

    @cached_property
    def sample(self) -> Sample | None:
        """The test answers of the runs that finished; None where one of them has none."""
        answers = [final.sample for final in self.finals if final.sample]
        return Sample.of(answers) if answers and len(answers) == len(self.finals) else None

    @cached_property
    def compared(self) -> Sample | None:
        """What is compared with other rows: as `sample`, but higher is better."""
        if self.sample is None or self.metric.sign == 1:
            return self.sample
        return replace(self.sample, totals=-self.sample.totals)

    @cached_property
    def score(self) -> Interval | None:
        """The score on test over the runs that finished, with its interval; None without one."""
        if self.sample:
            return interval_of(self.sample, self.metric)
        # Records of before answers were stored have accuracies.
        means = [self.metric.mean(final.score) for final in self.finals]
        if not means or not all(0 <= mean <= 1 for mean in means):
            return None
        return in_unit(interval(means, self.finals[0].test_examples), self.metric)

    @cached_property
    def costs(self) -> list[Cost]:
        """Costs of all runs, finished or not; only those with softmax, if there are any."""
        measured = [run.cost for run in self.runs if run.cost]
        return [cost for cost in measured if cost.softmax] or measured

    @property
    def failures(self) -> str:
        """How the runs that did not finish ended, in one line; empty where all finished."""
        failed = group_by((run for run in self.runs if not run.final), failure)
        if len(failed) == 1 and not self.finals:
            return next(iter(failed))
        seeds = {reason: [str(run.spec.seed) for run in runs] for reason, runs in failed.items()}
        return "; ".join(f"seed {', '.join(own)} {reason}" for reason, own in seeds.items())


def group_by(runs: Iterable[Run], key: Callable[[Run], Key]) -> dict[Key, list[Run]]:
    """The runs by `key`; keys and runs are in the order of `runs`."""
    groups: dict[Key, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def failure(record: Record) -> str:
    """How a run ended that did not finish, in a few words."""
    status, reason = record.status.replace("_", " "), plain(record.reason, REASON)
    if not reason:
        return f"{status} at step {record.curve[-1].step}" if record.curve else status
    return reason if status in reason.lower() else f"{status}: {reason}"


def in_order(rows: Iterable[Row]) -> list[Row]:
    """The best first, by their score; those without one last."""

    def key(row: Row) -> tuple[float, str]:
        return -row.metric.sign * row.score.mean if row.score else math.inf, row.label

    return sorted(rows, key=key)
