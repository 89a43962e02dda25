"""Differences between the rows of a table, with intervals and p-values."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from reports.statistics import Sample, differences, holm
from reports.tables.boards import Board
from reports.tables.scores import shown

PAIRS = ("first", "second", "difference", "low", "high", "p", "p_holm")

COLUMNS = ["table", "question", "metric", *PAIRS]
"""Of the pairs of several tables: `question` is that of a suite, or a task."""


def pairs(samples: Mapping[str, Sample], metric: str) -> pd.DataFrame:
    """Each pair of rows that are compared, the better row first.

    Columns: `first`, `second`; `difference`, the metric of the first row minus that of the second,
    with the ends `low` and `high` of its 95 % interval; `p`, the p-value that there is no
    difference, and `p_holm`, adjusted for the number of pairs of the table by Holm's method.
    """
    rows = sorted(samples, key=lambda row: -samples[row].mean)
    if len(rows) < 2:
        return pd.DataFrame(columns=[*PAIRS])
    found = differences([samples[row] for row in rows])
    at = np.triu_indices(len(rows), 1)
    scale = _scale(metric)
    mean, half, p = scale * found.mean[at], abs(scale) * found.half[at], found.p[at]
    first, second = ([rows[i] for i in side] for side in at)
    return pd.DataFrame({
        "first": first, "second": second, "difference": mean, "low": mean - half,
        "high": mean + half, "p": p, "p_holm": holm(p),
    })  # fmt: skip


def of_boards(boards: Iterable[Board]) -> pd.DataFrame:
    """The pairs of the rows that are compared on each leaderboard, by `COLUMNS`."""
    parts = [pd.DataFrame(columns=COLUMNS)]
    for board in boards:
        rows = [row for row in board.rows if row.compared and not row.standing.not_compared]
        metric = board.metric or "accuracy"
        found = pairs({row.label: row.compared for row in rows if row.compared}, metric)
        task = board.spec.task.name
        parts += [found.assign(table=board.title, question=task, metric=metric)]
    return joined(parts)


def joined(parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The pairs of several tables in one frame, by `COLUMNS`."""
    found = [part for part in parts if len(part)]
    return pd.concat(found, ignore_index=True)[COLUMNS] if found else pd.DataFrame(columns=COLUMNS)


def between(found: pd.DataFrame, first: str, second: str) -> pd.DataFrame:
    """The differences of two rows in every table that compares them, first minus second."""
    one = found[(found["first"] == first) & (found["second"] == second)]
    other = found[(found["first"] == second) & (found["second"] == first)]
    ends = {"difference": -other["difference"], "low": -other["high"], "high": -other["low"]}
    turned = other.assign(first=first, second=second, **ends)
    return pd.concat([one, turned]).sort_index()


def _scale(metric: str) -> float:
    """What a difference of scores is multiplied by to be one of the metric."""
    own: Any = None if metric == "accuracy" else metric
    return shown(1.0, own) - shown(0.0, own)
