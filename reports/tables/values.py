"""The values of rows as tables show them: numbers, intervals, and their marks."""

from collections.abc import Callable
from statistics import fmean, median

from harness.records.record import Cost
from reports.tables.boards import Row
from reports.text import NOTHING, number

__all__ = ["NOTHING", "number"]

UNMEASURED = "not measured"
ONE_RUN, PARTIAL, PAPER, EXPECTED = "†", "‡", "§", "¶"
"""Marks: an interval of one seed, unfinished runs, published numbers, known check failures."""

CHOSEN_ON_TEST = "⁂"
"""Mark: an accuracy that is the best of all evaluations on test."""

NO_EVIDENCE = "∅"
"""Mark: a row that does not beat every baseline."""

UNEQUAL = "≠"
"""Mark: a row whose parameters differ from those of softmax."""

MIB = 2**20
"""Bytes of a MiB."""


def result_text(row: Row) -> str:
    """The score of a row with its interval and marks; how the runs ended that have none."""
    if row.score is None:
        return row.failures or NOTHING
    mean, low, high = map(row.metric.text, row.score[:3])
    text = f"{mean} [{low}, {high}]"
    text += ONE_RUN if row.score.over == "examples" else ""
    text += NO_EVIDENCE if row.standing.beats_baselines is False else ""
    return f"{text}{PARTIAL}; {row.failures}" if row.failures else text


def over_runs(row: Row, value: Callable[[Cost], float | None]) -> float | None:
    """Median over the measured runs of a row; None where none has the value."""
    values = [one for cost in row.costs if (one := value(cost)) is not None]
    return median(values) if values else None


def time_ratio(cost: Cost) -> float | None:
    """Median training time over that of the fastest softmax."""
    return cost.over_softmax.median if cost.over_softmax else None


def memory_ratio(cost: Cost) -> float | None:
    """Peak memory as a multiple of softmax's."""
    return cost.memory_ratio


def best_on_test(row: Row) -> float | None:
    """The mean of the best scores on test; None without them."""
    best = [final.best_on_test for final in row.finals if final.best_on_test is not None]
    return fmean(best) if best else None


def best_on_test_text(row: Row) -> str:
    """`best_on_test` as text."""
    return NOTHING if (best := best_on_test(row)) is None else row.metric.text(best)
