"""What a README shows of a suite: the fastest of the best rows, and a table of some rows."""

from collections.abc import Hashable, Iterator

import pandas as pd

from harness.records.families import family_of
from reports.markdown import escape, table
from reports.pages.suite import Tables, asked_rows, fastest, middle_length
from reports.text import NOTHING, number

README_ROWS, README_FIRST = 8, 3
"""The rows of the table, or more if its first and named rows are more; how many are the first."""


def readme_table(of: Tables) -> str:
    """Rows of the matrix with what they answer and cost; *1 seed* is explained if one has it."""
    asked, middle = asked_rows(of.matrix, of.suite), middle_length(of.suite)
    rows = asked.loc[_readme_rows(asked, of)]
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
    return table(head, lines) + "\n*1 seed*: of one finished run." * is_single


def readme_answer(of: Tables) -> str:
    """The fastest of the best rows of each question that has any, as a list."""
    return "\n".join(
        f"- {title}: **{escape(f'{row} ({time})')}**" for title, row, time in _fastest(of)
    )


def _fastest(of: Tables) -> Iterator[tuple[str, str, str]]:
    """Title, row and time of the fastest of the best rows of each question that has any."""
    for question in of.suite.questions:
        for row, time in [*fastest(of, question.name).items()][:1]:
            yield question.title, row, time


def _readme_rows(asked: pd.DataFrame, of: Tables) -> list[Hashable]:
    """The first rows of the suite, those of `readme_answer`, the best of each other family."""
    named = [row for _, row, _ in _fastest(of)]
    first = [row.label for row in of.suite.rows[:README_FIRST]]
    chosen = [row for row in dict.fromkeys([*first, *named]) if row in asked.index]
    families = asked["attention"].map(family_of)
    others = asked.index[~families.duplicated() & ~families.isin(families[chosen])]
    return [*chosen, *others][: max(README_ROWS, len(chosen))]
