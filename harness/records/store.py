"""A folder of records, one JSON file each, written atomically."""

import json
import shlex
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from harness.records.files import remove_partial, require_writable, write_atomic
from harness.records.record import Record
from harness.records.spec import RunSpec
from zoo.registry import UserError, in_one_line


class Broken(NamedTuple):
    """A file in a store that is not a record, and the reason in one line."""

    path: Path
    reason: str


class Store:
    """A folder of records."""

    def __init__(self, folder: Path) -> None:
        """Use `folder`, which is created by the first write."""
        self.folder = folder

    def require_writable(self) -> None:
        """Create the folder if it does not exist.

        Raises:
            UserError: it cannot be written.
        """
        require_writable(self.folder, f"store {str(self.folder)!r}", "give another --store")

    def path(self, spec: RunSpec) -> Path:
        """The file of the record of `spec`."""
        name = (
            f"{spec.task.name}-{spec.attention}-{spec.budget}-{spec.device}-s{spec.seed}-{spec.id}"
        )
        return self.folder / f"{name}.json"

    def checkpoint(self, spec: RunSpec) -> Path:
        """The file of the checkpoint of an unfinished run of `spec`."""
        return self.path(spec).with_suffix(".checkpoint")

    def find(self, spec: RunSpec) -> Record | None:
        """The record of `spec`, if the store holds one.

        Raises:
            UserError: the file of that name is not a record, or cannot be read.
        """
        path = self.path(spec)
        try:
            path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UserError(
                f"{path} cannot be read ({error.strerror}); give another --store"
            ) from error
        content = _read(path)
        if isinstance(content, Broken):
            raise UserError(
                f"{path} is not a record ({content.reason}); move it away to run this again"
            )
        return content

    def write(self, record: Record) -> Path:
        """Write the record atomically, and return its path.

        Raises:
            UserError: it cannot be written.
        """
        path, text = self.path(record.spec), record.model_dump_json(indent=1) + "\n"
        try:
            return write_atomic(path, text.encode())
        except OSError as error:
            raise UserError(
                f"record {path} cannot be written ({error.strerror}); free space, or give another "
                "--store"
            ) from error

    def remove_partial_files(self) -> None:
        """Delete the files of processes that were killed while writing."""
        remove_partial(self.folder)

    def read(self) -> tuple[list[Record], list[Broken]]:
        """Every record, in order of file name, and every JSON file that is not a record."""
        contents = [_read(path) for path in sorted(self.folder.glob("*.json"))]
        records = [content for content in contents if isinstance(content, Record)]
        return records, [content for content in contents if isinstance(content, Broken)]


def _read(path: Path) -> Record | Broken:
    if not path.is_file():
        return Broken(path, "it is not a regular file")
    text = ""
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
    """The command that repeats the run of a record of schema 1; empty for any other text."""
    try:
        content: Any = json.loads(text)
        if content["schema_version"] != 1:
            return ""
        spec = content["spec"]
        values = spec["attention"], spec["task"]["name"], spec["budget"], str(spec["seed"])
        options = zip(("--attention", "--task", "--budget", "--seeds"), values, strict=True)
        command = shlex.join(["harness", "run", *chain.from_iterable(options)])
        return command if command.isprintable() else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
