"""The state of a store at any time: runs that are done, running, interrupted, failed.

The few fields of every record that it needs are in the file `.index` of the store: see
docs/decisions/0051-index-of-a-store.md. A damaged, missing or outdated index costs time only.
"""

import hashlib
import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from harness.records.fields import Frozen
from harness.records.files import read_model, write_atomic
from harness.records.locks import State
from harness.records.record import FINAL, Record, Status
from harness.records.sources import Origin, outdated
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
        origin: the code and the data of the run; None where the file is not a record.
    """

    modified: int
    size: int
    status: Status | None
    reason: str
    origin: Origin | None


class Index(Frozen):
    """The content of the file; `code` is the digest of the code that made it."""

    code: str
    files: dict[str, Summary]


class Overview(NamedTuple):
    """The runs of a store, each in one of the groups.

    Attributes:
        done: the runs with a final status whose code and data are current, by name.
        failed: the runs that failed, by name.
        running: the states of runs that a process makes now, by name.
        interrupted: what is known of the runs that can be continued, by name.
        outdated: names of other runs with a final status; see `harness.records.sources.outdated`.
        broken: files that are not records.
    """

    done: dict[str, Summary]
    failed: dict[str, Summary]
    running: dict[str, State]
    interrupted: dict[str, State | None]
    outdated: list[str]
    broken: list[Broken]


def overview(store: Store) -> Overview:
    """Look at a store; nothing in it changes but its index.

    Raises:
        UserError: it cannot be listed.
    """
    files = {file.removesuffix(".json"): found for file, found in summaries(store).items()}
    records = {name: found for name, found in files.items() if found.status}
    states = store.locks.states()
    running = {name: state for name, state in states.items() if store.locks.is_held(name)}
    ended = {name: record for name, record in records.items() if name not in running}
    final = {name: record for name, record in ended.items() if record.status in FINAL}
    origins = {name: record.origin for name, record in final.items() if record.origin}
    old = [n for n, is_old in zip(origins, outdated([*origins.values()]), strict=True) if is_old]
    done = {name: record for name, record in final.items() if name not in {*old}}
    failed = {name: record for name, record in ended.items() if record.status == "failed"}
    saved = [path.stem for path in store.folder.glob("*.checkpoint")]
    begun = dict.fromkeys([*states, *saved, *ended])
    others = {*running, *final, *failed}
    interrupted = {name: states.get(name) for name in sorted(begun) if name not in others}
    wrong = {name: found.reason for name, found in files.items() if not found.status}
    broken = [Broken(store.folder / f"{name}.json", reason) for name, reason in wrong.items()]
    return Overview(done, failed, running, interrupted, old, broken)


def summaries(store: Store) -> dict[str, Summary]:
    """The summary of every JSON file of a store, by its name, sorted."""
    started, index = time.time_ns(), read_model(store.folder / NAME, Index)
    indexed = index.files if index and index.code == _code() else {}
    found: dict[str, Summary] = {}
    for name, stat in store.files().items():
        old = indexed.get(name)
        if old is None or (old.modified, old.size) != (stat.st_mtime_ns, stat.st_size):
            old = _summary(store.read_one(name.removesuffix(".json")), stat)
        found[name] = old
    # A file that was written just now may be written again with the same time and size.
    settled = {n: file for n, file in found.items() if file.modified < started - SETTLED}
    if settled != indexed:
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
        origin=content.origin if is_record else None,
    )


@cache
def _code() -> str:
    """SHA-256 of the modules that read records, so that no rule of an older version is believed."""
    sources = (path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return hashlib.sha256(b"".join(sources)).hexdigest()
