"""The few fields of every record of a store that its state needs, read once for each file.

They are kept in the file `.index` of the store, with the time and the size of each record's file: a
file that has another time or size is read again, and so are all after a change of this package's
code. A damaged, missing or outdated index costs time only. Several processes may read it, and
replace it.
"""

import hashlib
import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from harness.records.fields import Frozen
from harness.records.files import write_atomic
from harness.records.record import Record, Status
from harness.records.store import Broken, Store

NAME = ".index"

SETTLED = 2 * 10**9
"""Nanoseconds after which a file that is written again has another time, on any file system."""


class Summary(Frozen):
    """The file of a record.

    Attributes:
        modified: when it was written, in nanoseconds.
        size: bytes.
        status: of the run; None where the file is not a record.
        reason: of the run, or why the file is not a record.
        seconds: of a finished run; None of others.
    """

    modified: int
    size: int
    status: Status | None
    reason: str
    seconds: float | None


class Index(Frozen):
    """The content of the file; `code` is the digest of the code that made it."""

    code: str
    files: dict[str, Summary]


def summaries(store: Store) -> dict[str, Summary]:
    """The summary of every JSON file of a store, by its name, sorted.

    Raises:
        UserError: the store cannot be listed.
    """
    started, known = time.time_ns(), _load(store.folder / NAME)
    found: dict[str, Summary] = {}
    for name, stat in store.files().items():
        old = known.get(name)
        if old is None or (old.modified, old.size) != (stat.st_mtime_ns, stat.st_size):
            old = _summary(store.read_file(name), stat)
        found[name] = old
    # A file that was written just now may be written again with the same time and size.
    settled = {n: one for n, one in found.items() if one.modified < started - SETTLED}
    if settled != known:
        content = Index(code=_code(), files=settled).model_dump_json()
        with suppress(OSError):  # a store that cannot be written can be looked at
            write_atomic(store.folder / NAME, content.encode())
    return found


def _summary(content: Record | Broken, stat: os.stat_result) -> Summary:
    is_record = isinstance(content, Record)
    return Summary(
        modified=stat.st_mtime_ns,
        size=stat.st_size,
        status=content.status if is_record else None,
        reason=content.reason,
        seconds=content.final.seconds if is_record and content.final else None,
    )


def _load(path: Path) -> dict[str, Summary]:
    try:
        if not path.is_file():  # opening a named pipe would block for ever
            return {}
        index = Index.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return {}
    return index.files if index.code == _code() else {}


@cache
def _code() -> str:
    """SHA-256 of the modules that read records, so that no rule of an older version is believed."""
    sources = (path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return hashlib.sha256(b"".join(sources)).hexdigest()
