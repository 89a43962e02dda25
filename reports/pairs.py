"""Differences between the rows of a table, with intervals and p-values."""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from harness.records.record import Metric
from reports.statistics import Sample, differences, holm

PAIRS = ("metric", "first", "second", "difference", "low", "high", "p", "p_holm")

COLUMNS = ["table", "question", *PAIRS]
"""Of the pairs of several tables: a suite, or the leaderboard."""


def pairs(samples: Mapping[str, Sample], metric: Metric) -> pd.DataFrame:
    """Each pair of rows that are compared, the better row first; of `samples` higher is better.

    Columns: `metric`, its name; `first`, `second`; `difference`, the metric of the first row minus
    that of the second,
    with the ends `low` and `high` of its 95 % interval; `p`, the p-value that there is no
    difference, and `p_holm`, adjusted for the number of pairs of the table by Holm's method.
    """
    rows = sorted(samples, key=lambda row: -samples[row].mean)
    if len(rows) < 2:
        return pd.DataFrame(columns=[*PAIRS])
    found = differences([samples[row] for row in rows])
    at = np.triu_indices(len(rows), 1)
    # The differences of an exponential are those of its logarithm.
    scale = metric.sign * (1.0 if metric.exponential else metric.scale)
    name = f"log {metric.name}" if metric.exponential else metric.name
    mean, half, p = scale * found.mean[at], abs(scale) * found.half[at], found.p[at]
    first, second = ([rows[i] for i in side] for side in at)
    return pd.DataFrame({
        "metric": name, "first": first, "second": second, "difference": mean, "low": mean - half,
        "high": mean + half, "p": p, "p_holm": holm(p),
    })  # fmt: skip


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
