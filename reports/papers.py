"""Numbers that papers published, measured by others, and results of suites beside them.

They are read from CSV files, and never combined with records.
"""

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from reports.render import rendered

if TYPE_CHECKING:
    from harness.records.suites import Suite

PRINTED = 0.05
"""Half a unit of the last printed digit of a result."""


_LRA = """\
- Long Range Arena: Text chooses its checkpoint on the test set; the pooled vector includes padding,
  and sampled tokens may be padding; no seed is set; the last incomplete test batch is dropped; the
  timed softmax is hand-written, fp32 and gradient-checkpointed while the other variants are not;
  evaluation is inside the timed loop; the Performer baseline scales queries and keys twice.
"""

_CHEN = "Chen et al. 2023 (arXiv 2305.19798), "

WEAKNESSES = {
    f"{_CHEN}Table 1": (
        "- UEA: the accuracy is the best of all epochs on the test set. The authors' command for "
        "SpokenArabicDigits names no training file: it may have trained on test.\n"
    ),
    f"{_CHEN}Table 2": _LRA,
    f"{_CHEN}Table 3": _LRA,
    f"{_CHEN}Table 4": (
        "- D4RL: the published numbers are of environments of other versions. Reformer and "
        "Flowformer, rows of the table, have no causal form here.\n"
    ),
}
"""Known weaknesses of the runs behind each published table."""


class Number(NamedTuple):
    """One published number as printed, with this project's names of task and variant.

    For a task that this project does not have, `task` is the name of the data set, or `average` for
    the mean over the paper's tasks.
    """

    task: str
    attention: str
    value: str
    unit: str  # %, s/1K steps, GB or normalised return
    source: str
    table: str

    @property
    def reference(self) -> str:
        """Source and table."""
        return f"{self.source}, {self.table}"


def published(task_key: str, attention: str) -> Mapping[str, Number]:
    """What was published for a variant on a task, by unit.

    Only the key of the published task has numbers: other options, another version or shuffled
    blocks make another task.
    """
    return _numbers().get((task_key, attention), {})


def published_on(task_key: str, unit: str) -> list[Number]:
    """What was published on a task in a unit, for any variant."""
    return [
        numbers[unit]
        for (task, _), numbers in _numbers().items()
        if task == task_key and unit in numbers
    ]


def results(answers: pd.DataFrame, seeds: pd.DataFrame, suite: "Suite") -> pd.DataFrame:
    """The results of a suite with the published numbers, a line for each row and question.

    Args:
        answers: of `reports.suites.answers`.
        seeds: of `reports.suites.results`.
        suite: with `published`.

    Returns:
        The columns of `answers`, and `best_on_test` (the mean over seeds of the best of all
        evaluations on test), `published`, `published_text` (as printed) and `published_is`
        (`within`, `above` or `below` the interval here, as rounded in print; else empty).
    """
    runs = seeds[seeds["status"] == "ok"].groupby(["question", "row"])
    best = runs["best_on_test"].mean() if "best_on_test" in seeds else runs["score"].mean() * np.nan
    keys = seeds.groupby("question")["task"].first()
    numbers = [
        _number(keys.get(line["question"], ""), line["attention"], suite)
        for line in answers.to_dict("records")
    ]
    found = answers.join(best.rename("best_on_test"), on=["question", "row"]).assign(
        published=[float(one.value) if one else np.nan for one in numbers],
        published_text=[one.value if one else "" for one in numbers],
    )
    is_compared = found["published"].notna() & found["mean"].notna()
    where = [
        is_compared & (found["published"] + PRINTED < found["low"]),
        is_compared & (found["published"] - PRINTED > found["high"]),
        is_compared,
    ]
    return found.assign(published_is=np.select(where, ["below", "above", "within"], ""))


def means(results: pd.DataFrame, suite: "Suite") -> pd.DataFrame:
    """The mean of each row here and as published, over the questions that have both.

    Where only the mean of a whole table is published, the mean here is over all of its questions.
    Columns: `questions` (their number), `here`, `published`.
    """
    lines = {}
    for row, of_row in results[results["mean"].notna()].groupby("row", sort=False):
        both = of_row[of_row["published"].notna()]
        number = _number("average", of_row["attention"].iloc[0], suite)
        if len(both) > 1:
            lines[row] = len(both), both["mean"].mean(), both["published"].mean()
        elif number and len(of_row) == len(suite.questions):
            lines[row] = len(of_row), of_row["mean"].mean(), float(number.value)
    return pd.DataFrame.from_dict(lines, orient="index", columns=["questions", "here", "published"])


def _number(key: str, attention: str, suite: "Suite") -> Number | None:
    """The number of the table that a suite is of."""
    found = (one for one in published(key, attention).values() if one.reference == suite.published)
    return next(found, None)


def section(results: pd.DataFrame, suite: "Suite") -> str:
    """The part of the page of a suite that has the published numbers, of `results`."""
    asked = results.loc[results["text"] != "", "question"].unique()
    shown = results[results["question"].isin(asked)]
    return rendered(
        "published.md.j2",
        suite=suite,
        rows=shown.to_dict("records"),
        means=means(results, suite).to_dict("index"),
        weaknesses=WEAKNESSES.get(suite.published, ""),
        missing=[one.title for one in suite.questions if one.name not in asked],
    )


@cache
def _numbers() -> Mapping[tuple[str, str], Mapping[str, Number]]:
    index: dict[tuple[str, str], dict[str, Number]] = {}
    for file in sorted((files("reports") / "published").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".csv"):
            for line in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
                number = Number(**line)
                index.setdefault((number.task, number.attention), {})[number.unit] = number
    return index
