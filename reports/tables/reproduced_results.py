"""Results on the data sets of a published table beside the published ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Literal

from harness.records.record import Record
from reports.papers import Number, published
from reports.tables.rows import Row
from reports.tables.values import (
    CHOSEN_ON_TEST,
    NOTHING,
    best_on_test,
    best_on_test_text,
    result_text,
)
from reports.text import csv_text

UNITS = {"1": "%", "2": "%", "4": "normalised return"}
"""Units of published numbers, by table."""

PRINTED = 0.05
"""Half a unit of the last printed digit, in points."""

HEADINGS = (
    "table", "data_set", "attention", "budget", "unit", "seeds", "value", "low", "high",
    "interval_over", "best_on_test", "published", "published_is", "failures",
    "missing_data", "source", "commits",
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """A variant on a data set.

    Attributes:
        data_set: its name.
        attention: the variant.
        number: the published number, if there is one.
        row: the runs; None where there is none, as without data.
    """

    data_set: str
    attention: str
    number: Number | None
    row: Row | None

    @property
    def value(self) -> float | None:
        """The published number."""
        return float(self.number.value) if self.number else None

    @property
    def ends(self) -> tuple[float, float, float] | None:
        """The value here with the ends of its interval, in the unit of the published number."""
        row = self.row
        return row.score[:3] if row and row.score else None

    @property
    def text(self) -> str:
        """The value with its interval, or how the runs ended."""
        return result_text(self.row) if self.row else NOTHING

    @property
    def position(self) -> Literal["within", "above", "below"] | None:
        """Where the published number is, as rounded in print, relative to the interval here."""
        if self.value is None or self.ends is None:
            return None
        _, low, high = self.ends
        if self.value + PRINTED < low:
            return "below"
        return "above" if self.value - PRINTED > high else "within"


@dataclass(frozen=True)
class Results:
    """A reproduced table.

    Attributes:
        table: its number in the paper.
        budget: the recipe of the runs.
        present: the key of the task of each data set that is present, by its name.
        attentions: the rows.
        records: every run.
        missing: how to get each of the other data sets, by its name.
    """

    table: str
    budget: str
    present: Mapping[str, str]
    attentions: tuple[str, ...]
    records: tuple[Record, ...]
    missing: Mapping[str, str]

    @property
    def source(self) -> str:
        """The paper and the table."""
        return f"Chen et al. 2023 (arXiv 2305.19798), Table {self.table}"

    @cached_property
    def all(self) -> list[Result]:
        """Every variant on every data set, those that are missing last."""
        return [
            Result(name, attention, self._number(name, attention), self._row(name, attention))
            for name in (*self.present, *self.missing)
            for attention in self.attentions
        ]

    @property
    def shown(self) -> list[Result]:
        """The results on the data sets that are present."""
        return [result for result in self.all if result.data_set in self.present]

    def means(self) -> list[tuple[str, float, float, int]]:
        """For each variant: the mean here, the mean of the published numbers, and of how many.

        The means of a variant are over the data sets on which it has both. Where only the mean of a
        whole table is published, the mean here is over all of its data sets.
        """
        means = []
        for attention in self.attentions:
            own = [one for one in self.all if one.attention == attention and one.ends]
            both = [one for one in own if one.value is not None]
            if len(both) > 1:
                means.append((attention, _mean(both), fmean(o.value or 0 for o in both), len(both)))
            elif own and not self.missing and (number := self._published("average", attention)):
                means.append((attention, _mean(own), float(number.value), len(own)))
        return means

    def _row(self, name: str, attention: str) -> Row | None:
        own = (self.present.get(name), attention)
        runs = [run for run in self.records if (run.spec.task.key, run.spec.attention) == own]
        return Row(attention, tuple(sorted(runs, key=lambda run: run.spec.seed))) if runs else None

    def _number(self, name: str, attention: str) -> Number | None:
        key = self.present.get(name)
        return self._published(key, attention) if key else None

    def _published(self, key: str, attention: str) -> Number | None:
        """Published numbers belong to the recipe `paper` alone."""
        number = published(key, attention).get(UNITS[self.table])
        of_table = number and number.reference == self.source
        return number if of_table and self.budget == "paper" else None


def _mean(results: Sequence[Result]) -> float:
    return fmean(result.ends[0] for result in results if result.ends)


def as_csv(results: Results) -> str:
    """Every variant on every data set at full precision; a cell without a value is empty."""
    return csv_text(HEADINGS, lines(results))


def lines(results: Results) -> list[dict[str, object]]:
    """The values of `HEADINGS` for every variant on every data set."""
    shared = {"table": results.table, "budget": results.budget, "unit": UNITS[results.table]}
    return [
        {**shared, **_line(one), "missing_data": results.missing.get(one.data_set)}
        for one in results.all
    ]


def _line(result: Result) -> dict[str, object]:
    row, number = result.row, result.number
    value, low, high = result.ends or (None, None, None)
    commits = {commit for run in row.runs for commit in run.environment.commits} if row else ()
    return {
        "data_set": result.data_set,
        "attention": result.attention,
        "seeds": " ".join(str(run.spec.seed) for run in row.runs if run.final) if row else None,
        "value": value,
        "low": low,
        "high": high,
        "interval_over": row.score.over if row and row.score else None,
        "best_on_test": best_on_test(row) if row else None,
        "published": result.value,
        "published_is": result.position,
        "failures": row.failures if row else None,
        "source": number.reference if number else None,
        "commits": " ".join(sorted(commits)),
    }


def cells(result: Result) -> list[str]:
    """A line for a page: data set, variant, seeds, values, and where the published one is."""
    finished = result.row.finals if result.row else []
    return [
        result.data_set,
        result.attention,
        str(len(finished)) if finished else NOTHING,
        result.text,
        best_on_test_text(result.row) if result.row else NOTHING,
        result.number.value if result.number else NOTHING,
        result.position or NOTHING,
    ]


CELLS = (
    "data set", "attention", "seeds", "here", f"best on test{CHOSEN_ON_TEST}", "published",
    "published is",
)  # fmt: skip
"""The headings of `cells`."""


def mean_cells(means: tuple[str, float, float, int]) -> list[str]:
    """A line for a page: variant, number of data sets, both means."""
    attention, own, others, count = means
    return [attention, str(count), f"{own:.1f}", f"{others:.1f}"]
