"""The columns of a board: one list for Markdown, CSV and the terminal."""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from harness.records.fields import Quartiles
from harness.records.record import WITHOUT_SOFTMAX, Cost, Implementation
from reports.papers import published
from reports.statistics.tiers import tier_text
from reports.tables.boards import Row
from reports.tables.settings import chosen_fields
from reports.tables.values import (
    CHOSEN_ON_TEST,
    EXPECTED,
    MIB,
    NOTHING,
    PAPER,
    UNEQUAL,
    UNMEASURED,
    best_on_test,
    best_on_test_text,
    memory_ratio,
    number,
    over_runs,
    result_text,
)

MOST_DIFFERENCE = 0.1
"""A row is marked as `UNEQUAL` where its parameters differ by more than this part."""

GIGA = 10**9


class Column(NamedTuple):
    """One column of a board.

    Attributes:
        name: heading in CSV, with the unit.
        value: a row's value at full precision; None where it has none.
        heading: heading in Markdown, with the unit; empty for a column of CSV alone. `{test}` and
            `{dev}` in it are the metrics of the board.
        short: heading on the terminal; empty for a column that the terminal leaves out.
        text: how Markdown and the terminal show a row's value, as plain text.
        optional: whether Markdown and the terminal leave the column out of a board where no row has
            a value other than 0.
    """

    name: str
    value: Callable[[Row], object]
    heading: str = ""
    short: str = ""
    text: Callable[[Row], str] = lambda row: NOTHING
    optional: bool = False


def _parameters(cost: Cost) -> float:
    return cost.own.parameters


def _size(row: Row) -> str:
    """The number of parameters, with a mark where it is not that of softmax."""
    count = over_runs(row, _parameters)
    if count is None:
        return UNMEASURED
    # Softmax of a matched row has the width of the row, and not that of the recipe.
    ratios = [c.own.parameters / c.softmax.parameters for c in row.costs if c.softmax]
    differs = not row.spec.match and any(abs(ratio - 1) > MOST_DIFFERENCE for ratio in ratios)
    return f"{count:,.0f}{UNEQUAL if differs else ''}"


def _references(row: Row, which: Callable[[Cost], Implementation | None]) -> str | None:
    """The softmax that times are compared with; several where the runs of a row differ."""
    names = {str(name) for cost in row.costs if (name := which(cost))}
    return " or ".join(sorted(names)) or None


def _seeds(row: Row) -> str:
    finished, runs = len(row.finals), len(row.runs)
    return str(runs) if finished == runs else f"{finished} of {runs}"


def _best(row: Row) -> float | None:
    return None if row.standing.best is None else 100 * row.standing.best


def _at_baseline(row: Row) -> str:
    failed = row.standing.at_baseline
    return NOTHING if failed is None else f"{failed} of {len(row.finals)}"


def _dev(row: Row) -> float | None:
    return fmean(final.dev for final in row.finals) if row.finals else None


def _dev_text(row: Row) -> str:
    return NOTHING if (value := _dev(row)) is None else row.runs[0].selection.text(value)


def _interval(end: int) -> Callable[[Row], object]:
    return lambda row: row.score[end] if row.score else None


def _cost(
    name: str,
    value: Callable[[Cost], float | None],
    heading: str = "",
    short: str = "",
    write: Callable[[float], str] = number,
) -> Column:
    def text(row: Row) -> str:
        median_value = over_runs(row, value)
        if median_value is None:
            fits = not row.costs or any(cost.softmax for cost in row.costs)
            return UNMEASURED if fits else WITHOUT_SOFTMAX
        return write(median_value)

    return Column(name, lambda row: over_runs(row, value), heading, short, text)


def _quartiles(
    name: str, quartiles: Callable[[Cost], Quartiles | None], heading: str, short: str = ""
) -> Iterator[Column]:
    """Columns of all three quartiles; Markdown and terminal show the median."""

    def quartile(which: str) -> Callable[[Cost], float | None]:
        return lambda cost: getattr(quartiles(cost), which, None)

    yield _cost(f"{name}_q1", quartile("q1"))
    yield _cost(f"{name}_median", quartile("median"), heading, short)
    yield _cost(f"{name}_q3", quartile("q3"))


def _paper(name: str, unit: str, heading: str) -> Column:
    def value(row: Row) -> str | None:
        printed = published(row.spec.task.key, row.spec.attention).get(unit)
        return printed.value if printed else None

    return Column(
        f"paper_{name}", lambda row: float(value(row) or 0) or None,
        f"paper{PAPER}: {heading}", text=lambda row: value(row) or NOTHING, optional=True,
    )  # fmt: skip


def _paper_source(row: Row) -> str | None:
    numbers = published(row.spec.task.key, row.spec.attention).values()
    return "; ".join(sorted({number.reference for number in numbers})) or None


COLUMNS = (
    Column("attention", lambda row: row.spec.attention, "attention", "attention",
           lambda row: row.label + (EXPECTED if row.runs[-1].expected_failures else "")),
    Column("metric", lambda row: row.metric.name),
    Column("unit", lambda row: row.metric.unit or None),
    Column("test", _interval(0), "test {test} [95 % interval]", "test", result_text),
    Column("test_low", _interval(1)),
    Column("test_high", _interval(2)),
    Column("interval_over", lambda row: row.score.over if row.score else None),
    Column("tier", lambda row: tier_text(row.standing.tiers) or None, "tier", "tier",
           lambda row: tier_text(row.standing.tiers) or NOTHING, optional=True),
    Column("probability_best_percent", _best, "best (%)", "best %",
           lambda row: NOTHING if (value := _best(row)) is None else f"{value:.0f}",
           optional=True),
    Column("beats_baselines", lambda row: row.standing.beats_baselines),
    Column("runs_at_baseline", lambda row: row.standing.at_baseline, "at baseline",
           "at base", _at_baseline, optional=True),
    Column("dev", _dev, "dev {dev}", "dev", _dev_text),
    Column("best_on_test", best_on_test, f"best on test{CHOSEN_ON_TEST}",
           text=best_on_test_text, optional=True),
    Column("runs", lambda row: len(row.runs), "seeds", "seeds", _seeds),
    Column("runs_ok", lambda row: len(row.finals)),
    Column("seeds", lambda row: " ".join(str(run.spec.seed) for run in row.runs)),
    Column("options", lambda row: row.runs[0].options),
    Column("precision", lambda row: row.spec.train.precision),
    Column("chosen", lambda row: dict(chosen_fields(row.spec)) or None),
    Column("status", lambda row: " ".join(run.status for run in row.runs)),
    Column("reason", lambda row: row.failures or None),
    *_quartiles("seconds_per_1k_steps", lambda cost: cost.own.seconds_per_1k_steps,
                "time (s / 1K steps)", "s/1K steps"),
    *_quartiles("time_ratio", lambda cost: cost.over_softmax, "time (× fastest softmax)",
                "time ×"),
    Column("time_reference", lambda row: _references(row, lambda cost: cost.reference),
           "fastest softmax", text=lambda row: _references(row, lambda cost: cost.reference)
           or NOTHING, optional=True),
    _cost("peak_memory_mib", lambda cost: cost.own.peak_bytes / MIB, "peak memory (MiB)"),
    _cost("softmax_peak_memory_mib",
          lambda cost: cost.softmax.peak_bytes / MIB if cost.softmax else None),
    _cost("memory_ratio", memory_ratio, "peak memory (× SDPA softmax)", "memory ×"),
    *_quartiles("inference_tokens_per_second", lambda cost: cost.own.tokens_per_second,
                "inference (tokens / s)"),
    *_quartiles("inference_ratio", lambda cost: cost.inference_over_softmax,
                "inference time (× fastest softmax)"),
    Column("inference_reference", lambda row: _references(row, lambda c: c.inference_reference)),
    Column("parameters", lambda row: over_runs(row, _parameters), "parameters", text=_size),
    _cost("gflops_per_step", lambda cost: cost.own.flops / GIGA, "GFLOPs / step"),
    Column("implementations", lambda row: dict(row.runs[-1].implementations)),
    Column("commits", lambda row: " ".join(
        sorted({commit for run in row.runs for commit in run.environment.commits}))),
    _paper("accuracy_percent", "%", "accuracy (%)"),
    _paper("seconds_per_1k_steps", "s/1K steps", "time (s / 1K steps)"),
    _paper("peak_memory_gb", "GB", "peak memory (GB)"),
    Column("paper_source", _paper_source),
)  # fmt: skip
"""In the order of every table; CSV holds all of them."""


def columns_of(rows: Sequence[Row]) -> list[Column]:
    """The columns of a board: without the optional ones that say nothing of its rows."""
    titles = {"test": rows[0].metric.title, "dev": rows[0].runs[0].selection.title}
    return [
        column._replace(heading=column.heading.format(**titles))
        for column in COLUMNS
        if not column.optional or any(column.value(row) for row in rows)
    ]
