"""Published records: JSON lines, a file a row for runs, and one for each other kind."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.records.files import Text, line_of, read_lines, write_all
from harness.records.record import Record
from harness.records.store import (
    BaselineStore,
    CertificateStore,
    CostStore,
    RecordStore,
    ShallowStore,
    Store,
    StudyStore,
)

POINTS = 25
"""Points of a published curve, besides those at which dev was evaluated."""

FILES: Mapping[type[RecordStore[Any]], str] = {
    CostStore: "costs.jsonl", StudyStore: "studies.jsonl", CertificateStore: "certificates.jsonl",
    BaselineStore: "baselines.jsonl", ShallowStore: "baselines.jsonl",
}  # fmt: skip
"""The file of the records of each kind but runs."""


def file_of(run: Record) -> str:
    """The file of a published run: `SUITE/ROW.jsonl`, or `runs/ROW.jsonl` for a run of no suite."""
    names = (run.spec.question.suite or "runs", run.spec.row)
    return "/".join(re.sub(r"[^\w.@+-]+", "-", name).strip("-") for name in names) + ".jsonl"


def thin(run: Record) -> Record:
    """The run with the last point, the points with a score on dev, and about `POINTS` others."""
    every, last = max(1, len(run.curve) // POINTS), len(run.curve) - 1
    kept = (p for i, p in enumerate(run.curve) if i % every == 0 or i == last or p.dev is not None)
    return run.model_copy(update={"curve": [*kept]})


def lines_to_publish(store: Path) -> dict[str, dict[tuple[str, str], str]]:
    """The lines of every record of a store, by file, kind and name."""
    found: dict[str, dict[tuple[str, str], str]] = {}
    for kind in (Store, *FILES):
        of = kind.within(store)
        for record in of.read_whole():
            is_run = isinstance(record, Record)
            file = file_of(record) if is_run else FILES[kind]
            name, text = of.name_of(record), (thin(record) if is_run else record).model_dump_json()
            found.setdefault(file, {})[of.tag, name] = line_of(of.tag, name, text)
    return found


def merged(file: Path, lines: Mapping[tuple[str, str], str], old: Iterable[Text]) -> bytes:
    """The content of a file with more lines; of two of one record the new one."""
    kept = {(line.kind, line.name): line_of(line.kind, line.name, line.text)
            for line in old if line.file == file}  # fmt: skip
    return "".join(text for _, text in sorted({**kept, **lines}.items())).encode()


def publish(store: Path, out: Path) -> list[Path]:
    """Write the records of a store as lines to `out`, with those that it has; all files or none.

    Raises:
        UserError: a file of the store is not a record.
        OSError: a file cannot be written.
    """
    old = read_lines(out)
    return write_all({
        out / name: merged(out / name, lines, old)
        for name, lines in lines_to_publish(store).items()
    })  # fmt: skip
