"""The runs that tables show, the reasons for which others are left out, and how runs ended."""

import json
from collections.abc import Sequence
from math import prod

import pandas as pd

from harness.records.frame import best_trials_first
from harness.records.record import FINAL
from reports.table import Line
from reports.text import plain

REASON = 200  # The most characters of a reason in a table; the record has the complete reason


def without_others(
    runs: pd.DataFrame, rules: Sequence[tuple[Sequence[str], str, str]]
) -> pd.DataFrame:
    # Mark runs as `left_out`. A rule has the keys of a group, a column and a reason: only runs with
    # the value of the last run that is not outdated are shown, or else of the last run.
    last_first = runs.sort_values("started", ascending=False, kind="stable")
    ordered, runs = last_first.sort_values("outdated", kind="stable").index, runs.copy()
    for keys, column, reason in rules:
        left = runs.loc[ordered]
        left = left[left["left_out"] == ""]
        shown = left.groupby([left[key] for key in keys])[column].transform("first")
        runs.loc[left.index[left[column] != shown], "left_out"] = reason
    return runs


def final_runs(runs: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    # The runs at the values that trials chose. A row (equal `keys`) without such a run has its best
    # trial once all have ended, or all trials if none finished.
    if runs.empty:
        return runs
    final = runs["role"] != "trial"
    has_final = final.groupby([runs[key] for key in keys]).transform("any")
    trials = runs[~final & ~has_final]
    chosen = [at for _, same in trials.groupby([*keys], sort=False) for at in _best(same)]
    return runs[final | runs.index.isin(chosen)]


def _best(trials: pd.DataFrame) -> pd.Index:
    points = points_of(trials["grid"].iloc[0])
    if trials[trials["status"].isin(FINAL)]["point"].nunique() < points:
        return trials.index[:0]
    finished = trials[trials["status"] == "ok"]
    return best_trials_first(finished).index[:1] if len(finished) else trials.index


def points_of(grid: str) -> int:
    return prod(map(len, json.loads(grid).values())) if grid else 0


def failure(run: Line) -> str:
    status, reason = run["status"].replace("_", " "), plain(run["reason"], REASON)
    if not reason:
        step = run.get("last_step")
        return status if pd.isna(step) else f"{status} at step {int(step)}"
    return reason if status in reason.lower() else f"{status}: {reason}"
