"""Published records: JSON lines, one file for the runs of a row, one for each other kind."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from harness.records.files import line_of, read_lines
from harness.records.record import Record
from harness.records.store import RecordStore
from zoo.registry import UserError

POINTS = 25  # Points of a published curve, besides those at which dev was evaluated
KINDS: Mapping[str, type[RecordStore[Any]]] = {of.tag: of for of in RecordStore.__subclasses__()}


class Line(NamedTuple):
    """A record to publish: its published file, and its `source` in a store."""

    file: str
    kind: str
    name: str
    text: str
    source: Path


def file_of(suite: str, row: str) -> str:
    # `SUITE/ROW.jsonl`, or `runs/ROW.jsonl` without a suite.
    names = (re.sub(r"[^\w.@+-]+", "-", name).strip("-") for name in (suite or "runs", row))
    return f"{'/'.join(names)}.jsonl"


def line(of: RecordStore[Any], record: Any, file: str = "") -> Line:
    if isinstance(record, Record):
        file = file or file_of(record.spec.question.suite, record.spec.row)
        record = record.thinned(POINTS)
    name = of.name_of(record)
    text = line_of(of.tag, name, record.model_dump_json())
    return Line(file or of.file, of.tag, name, text, of.folder / f"{name}.json")


def every_line(store: Path) -> Iterator[Line]:
    for kind in KINDS.values():
        of = kind.within(store)
        for name, where in of.entries().items():
            if isinstance(where, Path):
                yield line(of, of.require(name))


def merged(lines: Iterable[Line], out: Path) -> dict[Path, bytes]:
    new = {(each.kind, each.name): each for each in lines}
    files = defaultdict[Path, dict[tuple[str, str], str]](dict)
    for key, each in new.items():
        files[out / each.file][key] = each.text
    found = [*read_lines(out)]
    changed = {*files, *(text.file for text in found if (text.kind, text.name) in new)}
    for text in found:
        if text.file in changed and (key := (text.kind, text.name)) not in new:
            if text.problem:
                raise UserError(
                    f"line {text.line} of {text.file} is not a record ({text.problem}); delete it"
                )
            files[text.file][key] = line_of(*key, text.text)
    contents = {path: [files[path][key] for key in sorted(files[path])] for path in sorted(changed)}
    return {path: "".join(texts).encode() for path, texts in contents.items()}
