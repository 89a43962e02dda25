"""A folder of records, one JSON file each, written whole or not at all."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from harness.records.files import require_writable, write_atomic
from harness.records.record import Record
from harness.records.spec import RunSpec
from zoo.registry import UserError, in_one_line


class Broken(NamedTuple):
    """A file in a store that is no record, and why in one line."""

    path: Path
    reason: str


class Store:
    """A folder of records."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made when it is first written to."""
        self.folder = folder

    def require_writable(self) -> None:
        """See to it that the folder can be written.

        Raises:
            UserError: it cannot.
        """
        require_writable(self.folder, f"store {str(self.folder)!r}", "give another --store")

    def path(self, spec: RunSpec) -> Path:
        """Where the record of `spec` stands."""
        name = (
            f"{spec.task.name}-{spec.attention}-{spec.budget}-{spec.device}-s{spec.seed}-{spec.id}"
        )
        return self.folder / f"{name}.json"

    def checkpoint(self, spec: RunSpec) -> Path:
        """Where the state of an unfinished run of `spec` stands."""
        return self.path(spec).with_suffix(".checkpoint")

    def find(self, spec: RunSpec) -> Record | None:
        """The record of `spec`, if the store holds one.

        Raises:
            UserError: what stands in its place is no record; it is left as it is.
        """
        path = self.path(spec)
        if not path.exists():
            return None
        found = _read(path)
        if isinstance(found, Broken):
            raise UserError(
                f"{path} is not a record ({found.reason}); move it away to run this again"
            )
        return found

    def write(self, record: Record) -> Path:
        """Put the record in the store, whole or not at all, and return its path."""
        text = record.model_dump_json(indent=1) + "\n"
        return write_atomic(self.path(record.spec), text.encode())

    def read(self) -> tuple[list[Record], list[Broken]]:
        """Every record, in order of file name, and every file that is none."""
        found = [_read(path) for path in sorted(self.folder.glob("*.json"))]
        records = [one for one in found if isinstance(one, Record)]
        return records, [one for one in found if isinstance(one, Broken)]


def _read(path: Path) -> Record | Broken:
    if not path.is_file():
        return Broken(path, "it is not a regular file")
    try:
        text = path.read_text(encoding="utf-8")
        record = Record.model_validate_json(text)
    except ValidationError as error:
        if old := _rerun_command(text):
            return Broken(path, f"it has an old schema; run it again with: {old}")
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        return Broken(path, f"{where}: {first['msg']}")
    except (OSError, UnicodeDecodeError) as error:
        return Broken(path, in_one_line(error))
    expected = Store(path.parent).path(record.spec).name
    if path.name != expected:
        return Broken(path, f"its specification belongs in {expected}; move it away")
    return record


def _rerun_command(text: str) -> str:
    """The command that makes a record of schema 1 again; empty where `text` is none."""
    try:
        found: Any = json.loads(text)
        if found["schema_version"] != 1:
            return ""
        spec = found["spec"]
        return (
            f"harness run --attention {spec['attention']} --task {spec['task']['name']} "
            f"--budget {spec['budget']} --seeds {spec['seed']}"
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
