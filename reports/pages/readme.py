"""The table of a README: the rows of a suite that its figure colours."""

from typing import TYPE_CHECKING

import pandas as pd

from reports.figures import style
from reports.markdown import escape, table
from reports.text import NOTHING, number

if TYPE_CHECKING:
    from reports.pages.suite import Tables


def readme_table(of: "Tables") -> str:
    """Eight rows of the matrix: what they answer, time and memory of training, and their state."""
    middle = sorted(of.suite.cost.lengths)[len(of.suite.cost.lengths) // 2]
    names = [question.name for question in of.suite.questions]
    asked = of.matrix[of.matrix[names].notna().any(axis=1)]
    styles = style.point_styles(zip(asked["attention"], asked.index, strict=True))
    rows = asked[[styles[str(row)].colour != style.FAINT for row in asked.index]]
    answered = of.answers[of.answers["answered"]].groupby("row")["question"].agg(", ".join)
    columns = [rows[f"time.{middle}"], rows[f"memory.{middle}"], rows["state_bytes"]]
    lines = [
        [escape(str(row)), escape(answered.get(row, NOTHING)), *map(_text, values)]
        for row, *values in zip(rows.index, *columns, strict=True)
    ]
    head = ["attention", "answers", f"time at {middle:,}", "memory", "state, bytes"]
    return table(head, lines)


def _text(value: float) -> str:
    return NOTHING if pd.isna(value) else number(value) if value < 1000 else f"{value:,.0f}"
