"""Versions of tasks: results of two versions are never shown together."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from harness.records.record import Record
from harness.records.spec import RunSpec

VERSION = re.compile(r"@(\d+)")


def of_newest_versions(records: Iterable[Record]) -> list[Record]:
    """The runs of the newest version of each task that any of the runs is of."""
    runs = list(records)
    newest: dict[str, int] = {}
    for run in runs:
        newest[run.spec.task.name] = max(newest.get(run.spec.task.name, 0), _version(run.spec))
    return [run for run in runs if _version(run.spec) == newest[run.spec.task.name]]


def left_out(records: Sequence[Record]) -> str:
    """The runs of older versions in one line; empty where there are none."""
    newest = {run.spec.id for run in of_newest_versions(records)}
    older = Counter(
        f"{run.spec.task.name}@{_version(run.spec)}" for run in records if run.spec.id not in newest
    )
    counts = ", ".join(f"{count} of {name}" for name, count in sorted(older.items()))
    return f"Left out, as there are runs of a newer version of the task: {counts}." if older else ""


def _version(spec: RunSpec) -> int:
    found = VERSION.search(spec.task.key)
    return int(found[1]) if found else 0
