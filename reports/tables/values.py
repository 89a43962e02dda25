"""The values of rows as tables show them: numbers, intervals, and their marks."""

from collections.abc import Callable, Sequence
from statistics import fmean, median

from harness.records.record import Cost
from reports.tables.boards import Row
from reports.tables.scores import metric_ends, value_text

NOTHING = "–"
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


def number(value: float) -> str:
    """Three significant digits, or all digits before the point where there are more."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:#.3g}"
    return f"{value:.3g}" if "e" in text else text.rstrip(".")


def percent(fraction: float) -> str:
    """A fraction as a percentage with one digit after the point, without the sign."""
    return f"{100 * fraction:.1f}"


def accuracy(row: Row) -> str:
    """Test accuracy in percent with its interval and marks; how the runs ended that have none."""
    if row.accuracy is None:
        return row.failures
    ends = [percent(value) for value in row.accuracy[:3]]
    # With a metric, the mark `NO_EVIDENCE` is that of the metric.
    return _interval_text(row, ends, row.accuracy.over, ordered=row.metric is None)


def measured(row: Row) -> str:
    """The metric of a row with its interval and marks; how the runs ended without one."""
    if row.score is None or row.metric is None:
        return row.failures or NOTHING
    ends = [value_text(value, row.metric) for value in metric_ends(row.score, row.metric)]
    return _interval_text(row, ends, row.score.over)


def _interval_text(row: Row, ends: Sequence[str], over: str, ordered: bool = True) -> str:
    """Mean, lowest and highest value with marks; `ordered`: whether they order the row."""
    mean, low, high = ends
    text = f"{mean} [{low}, {high}]"
    text += ONE_RUN if over == "examples" else ""
    text += NO_EVIDENCE if ordered and row.standing.beats_baselines is False else ""
    return f"{text}{PARTIAL}; {row.failures}" if row.failures else text


def result(row: Row) -> str:
    """What orders the row on its board: `accuracy`, or what is `measured` with its unit."""
    return f"{measured(row)} {row.metric}" if row.metric else accuracy(row)


def result_text(row: Row) -> str:
    """As `result`, without the unit."""
    return measured(row) if row.metric else accuracy(row)


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
    """The mean in percent of the best accuracies on test; None without them."""
    best = [final.best_on_test for final in row.finals if final.best_on_test is not None]
    return 100 * fmean(best) if best else None


def best_on_test_text(row: Row) -> str:
    """`best_on_test` with one digit after the point."""
    return NOTHING if (best := best_on_test(row)) is None else f"{best:.1f}"
