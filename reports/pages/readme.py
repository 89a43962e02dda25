"""What a README shows of a suite: the fastest of the best rows, and a table of some rows."""

from collections.abc import Hashable
from typing import TYPE_CHECKING

import pandas as pd

from harness.records.families import family_of
from reports.markdown import escape, table
from reports.pages.suite import Tables, asked_rows, fastest, middle_length
from reports.text import NOTHING, number

if TYPE_CHECKING:
    from harness.records.suites import Suite

README_ROWS, README_FIRST = 8, 3
"""The most rows of the table, and how many of a suite are the first of them."""


def readme_table(of: Tables) -> str:
    """Rows of the matrix with what they answer and cost; *1 seed* is explained if one has it."""
    asked, middle = asked_rows(of.matrix, of.suite), middle_length(of.suite)
    rows = asked.loc[_readme_rows(asked, of.suite)]
    answers = of.answers[of.answers["answered"]]
    single = answers["seeds"].eq(1).map({True: " (*1 seed*)", False: ""})
    texts = answers["question"].map(escape) + single
    answered = texts.groupby(answers["row"]).agg(", ".join)
    numbers = rows[[f"time.{middle}", f"memory.{middle}", "state_bytes"]]
    lines = [
        [escape(str(row)), answered.get(row, NOTHING), *map(number, values)]
        for row, *values in numbers.itertuples()
    ]
    head = ["attention", "answers", f"time at {middle:,}", "peak memory", "state, bytes"]
    is_single = any("*1 seed*" in text for _, text, *_ in lines)
    return table(head, lines) + "\n\n*1 seed*: of one finished run." * is_single


def readme_answer(of: Tables) -> str:
    """The fastest of the best rows of each question that has any, as a list."""
    best = {one.title: fastest(of, one.name)[:1] for one in of.suite.questions}
    return "\n".join(f"- {title}: **{escape(*rows)}**" for title, rows in best.items() if rows)


def _readme_rows(asked: pd.DataFrame, suite: "Suite") -> list[Hashable]:
    """The first rows of the suite, then the best of each other family: `README_ROWS` in all."""
    families = asked["attention"].map(family_of)
    first = [row.label for row in suite.rows[:README_FIRST] if row.label in asked.index]
    best = asked.index[~families.duplicated() & ~families.isin(families[first])]
    return [*first, *best][:README_ROWS]
