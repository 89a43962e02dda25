"""Accuracies on the tasks of a published table beside the published ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Literal

from harness.records.record import Record
from reports.papers import Number, published
from reports.tables.columns import (
    CHOSEN_ON_TEST,
    NOTHING,
    accuracy,
    best_on_test,
    best_on_test_text,
    percent,
)
from reports.tables.rows import Row
from reports.text import csv_text

UNIT = "%"

PRINTED = 0.05
"""Half a unit of the last printed digit, in points."""

HEADINGS = (
    "table", "task", "attention", "budget", "seeds", "accuracy_percent", "accuracy_low",
    "accuracy_high", "interval_over", "best_on_test_percent", "published_accuracy_percent",
    "published_is", "failures", "missing_data", "source", "commits",
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """A variant on a task.

    Attributes:
        task: the name of the task.
        attention: the variant.
        number: the published accuracy, if there is one.
        row: the runs; None where there is none, as without data.
    """

    task: str
    attention: str
    number: Number | None
    row: Row | None

    @property
    def value(self) -> float | None:
        """The published accuracy in percent."""
        return float(self.number.value) if self.number else None

    @property
    def text(self) -> str:
        """The accuracy with its interval, or how the runs ended."""
        return accuracy(self.row) if self.row else NOTHING

    @property
    def position(self) -> Literal["within", "above", "below"] | None:
        """Where the published accuracy is, as rounded in print, relative to the interval here."""
        if self.value is None or self.row is None or self.row.accuracy is None:
            return None
        _, low, high, _ = self.row.accuracy
        if self.value + PRINTED < 100 * low:
            return "below"
        return "above" if self.value - PRINTED > 100 * high else "within"


@dataclass(frozen=True)
class Results:
    """A table made again.

    Attributes:
        table: its number in the paper.
        budget: the recipe of the runs.
        tasks: the key of each task whose data are here, by its name.
        attentions: the rows.
        records: every run.
        missing: how to get the data of each other task, by its name.
    """

    table: str
    budget: str
    tasks: Mapping[str, str]
    attentions: tuple[str, ...]
    records: tuple[Record, ...]
    missing: Mapping[str, str]

    @property
    def source(self) -> str:
        """The paper and the table."""
        return f"Chen et al. 2023 (arXiv 2305.19798), Table {self.table}"

    @cached_property
    def all(self) -> list[Result]:
        """Every variant on every task, those without data last."""
        return [
            Result(task, attention, self._number(task, attention), self._row(task, attention))
            for task in (*self.tasks, *self.missing)
            for attention in self.attentions
        ]

    def means(self) -> list[tuple[str, float, float, int]]:
        """For each variant: the mean here, the mean of the published accuracies, and of how many.

        The means of a variant are over the tasks on which it has both.
        """
        means = []
        for attention in self.attentions:
            pairs = [
                (100 * result.row.accuracy.mean, result.value)
                for result in self.all
                if result.attention == attention and result.value is not None
                if result.row and result.row.accuracy
            ]
            if len(pairs) > 1:
                own, others = zip(*pairs, strict=True)
                means.append((attention, fmean(own), fmean(others), len(pairs)))
        return means

    def _row(self, task: str, attention: str) -> Row | None:
        runs = [
            r for r in self.records if (r.spec.task.name, r.spec.attention) == (task, attention)
        ]
        return Row(attention, tuple(sorted(runs, key=lambda run: run.spec.seed))) if runs else None

    def _number(self, task: str, attention: str) -> Number | None:
        """Published numbers belong to the recipe `paper` alone."""
        key = self.tasks.get(task)
        return published(key, attention).get(UNIT) if key and self.budget == "paper" else None


def as_csv(results: Results) -> str:
    """Every variant on every task at full precision; a cell without a value is empty."""
    return csv_text(HEADINGS, lines(results))


def lines(results: Results) -> list[dict[str, object]]:
    """The values of `HEADINGS` for every variant on every task."""
    shared = {"table": results.table, "budget": results.budget}
    return [
        {**shared, **_line(one), "missing_data": results.missing.get(one.task)}
        for one in results.all
    ]


def _line(result: Result) -> dict[str, object]:
    row, number = result.row, result.number
    interval = row.accuracy if row else None
    commits = {commit for run in row.runs for commit in run.environment.commits} if row else ()
    return {
        "task": result.task,
        "attention": result.attention,
        "seeds": " ".join(str(run.spec.seed) for run in row.runs if run.final) if row else None,
        "accuracy_percent": 100 * interval.mean if interval else None,
        "accuracy_low": 100 * interval.low if interval else None,
        "accuracy_high": 100 * interval.high if interval else None,
        "interval_over": interval.over if interval else None,
        "best_on_test_percent": best_on_test(row) if row else None,
        "published_accuracy_percent": result.value,
        "published_is": result.position,
        "failures": row.failures if row else None,
        "source": number.reference if number else None,
        "commits": " ".join(sorted(commits)),
    }


def cells(result: Result) -> list[str]:
    """A line for a page: task, variant, seeds, accuracies, and where the published one is."""
    finished = result.row.finals if result.row else []
    return [
        result.task,
        result.attention,
        str(len(finished)) if finished else NOTHING,
        result.text,
        best_on_test_text(result.row) if result.row else NOTHING,
        result.number.value if result.number else NOTHING,
        result.position or NOTHING,
    ]


CELLS = (
    "task", "attention", "seeds", "here (%)", f"best on test{CHOSEN_ON_TEST} (%)", "published (%)",
    "published is",
)  # fmt: skip
"""The headings of `cells`."""


def mean_cells(means: tuple[str, float, float, int]) -> list[str]:
    """A line for a page: variant, number of tasks, both means."""
    attention, own, others, count = means
    return [attention, str(count), percent(own / 100), percent(others / 100)]
