"""Numbers that papers published, measured by others, and results of suites beside them.

They are read from CSV files, and never combined with records.
"""

import io
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from reports.render import rendered

if TYPE_CHECKING:
    from harness.records.suites import Suite

PRINTED = 0.05
"""Half a unit of the last printed digit of a result."""


@cache
def _numbers() -> pd.DataFrame:
    folder = files("reports") / "published"
    tables = sorted(file.name for file in folder.iterdir() if file.name.endswith(".csv"))
    texts = [(folder / name).read_text(encoding="utf-8") for name in tables]
    parts = [pd.read_csv(io.StringIO(text), dtype=str) for text in texts]
    found = pd.concat(parts, ignore_index=True)
    found = found.assign(reference=found["source"] + ", " + found["table"])
    return found.rename(columns={"value": "printed"}).assign(value=found["value"].astype(float))


def published(**fields: str) -> pd.DataFrame:
    """The published numbers with these fields, a line each.

    Columns: `task` (its key), `attention`; `value`, and as `printed`; `unit` (%, s/1K steps, GB or
    normalised return); `reference`, source and table. Other options, another version or shuffled
    blocks make another key, which has no numbers. For a task that this project does not have, it is
    the name of the data set, or `average` for the mean over the paper's tasks.
    """
    found = _numbers()
    for name, text in fields.items():
        found = found[found[name] == text]
    return found


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
    keys = answers["question"].map(seeds.groupby("question")["task"].first())
    of_table = published(reference=suite.published).set_index(["task", "attention"])
    numbers = of_table.reindex(pd.MultiIndex.from_arrays([keys, answers["attention"]]))
    found = answers.join(best.rename("best_on_test"), on=["question", "row"]).assign(
        published=numbers["value"].to_numpy(),
        published_text=numbers["printed"].fillna("").to_numpy(),
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
    whole = published(reference=suite.published, task="average").set_index("attention")["value"]
    lines = {}
    for row, of_row in results[results["mean"].notna()].groupby("row", sort=False):
        both, attention = of_row[of_row["published"].notna()], of_row["attention"].iloc[0]
        if len(both) > 1:
            lines[row] = len(both), both["mean"].mean(), both["published"].mean()
        elif attention in whole and len(of_row) == len(suite.questions):
            lines[row] = len(of_row), of_row["mean"].mean(), whole[attention]
    return pd.DataFrame.from_dict(lines, orient="index", columns=["questions", "here", "published"])


def section(results: pd.DataFrame, suite: "Suite") -> str:
    """The part of the page of a suite that has the published numbers, of `results`."""
    asked = results.loc[results["text"] != "", "question"].unique()
    shown = results[results["question"].isin(asked)]
    return rendered(
        "published.md.j2",
        suite=suite,
        rows=shown.to_dict("records"),
        means=means(results, suite).to_dict("index"),
        missing=[one.title for one in suite.questions if one.name not in asked],
    )
