"""Trials: the runs that choose the recipe of a tuned row."""

import json
from collections.abc import Iterable

from harness.records.record import Record
from harness.records.tuning import is_trial, points
from reports.tables.settings import setting


def without_trials(records: Iterable[Record]) -> list[Record]:
    """The runs without trials, but with all trials of a row of which no trial finished."""
    kept: list[Record] = []
    rows: dict[str, list[Record]] = {}
    for record in records:
        (rows.setdefault(row_key(record), []) if is_trial(record) else kept).append(record)
    for trials in rows.values():
        tuning = trials[0].spec.tuning
        ids = {trial.spec.id for trial in trials}
        if tuning and len(ids) == len(points(tuning)) and not any(trial.final for trial in trials):
            kept += trials
    return kept


def row_key(record: Record) -> str:
    """Equal for all trials of one row: they differ in nothing but their point of the grid."""
    spec = record.spec
    return json.dumps([setting(spec), spec.attention, spec.options, spec.seed], sort_keys=True)
