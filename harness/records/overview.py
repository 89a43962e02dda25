"""The state of a store at any time: runs that are done, running, interrupted, failed, waiting.

The few fields of every record that it needs are in the file `.index` of the store: see
docs/decisions/0051-index-of-a-store.md. A damaged, missing or outdated index costs time only.
"""

import hashlib
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
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
        seconds: of a finished run; None of others.
        origin: the code and the data of the run; None where the file is not a record.
    """

    modified: int
    size: int
    status: Status | None
    reason: str
    seconds: float | None
    origin: Origin | None


class Index(Frozen):
    """The content of the file; `code` is the digest of the code that made it."""

    code: str
    files: dict[str, Summary]


class Overview(NamedTuple):
    """The runs of a store, each in one of the groups.

    Attributes:
        done: the runs with a final status, of the code and the data of now, by name.
        failed: the runs that failed, by name.
        running: the states of runs that a process makes now, by name.
        interrupted: what is known of the runs that can be continued, by name.
        waiting: names of runs of running commands that no process has begun.
        outdated: names of other runs with a final status; see `harness.records.sources.outdated`.
        broken: files that are not records.
        seconds_left: until the running commands end, about; None where unknown.
    """

    done: dict[str, Summary]
    failed: dict[str, Summary]
    running: dict[str, State]
    interrupted: dict[str, State | None]
    waiting: list[str]
    outdated: list[str]
    broken: list[Broken]
    seconds_left: float | None


def overview(store: Store) -> Overview:
    """Look at a store; nothing in it changes but its index.

    Raises:
        UserError: it cannot be listed.
    """
    files = {file.removesuffix(".json"): found for file, found in summaries(store).items()}
    records = {name: found for name, found in files.items() if found.status}
    states, announced = store.locks.states(), store.locks.announced()
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
    waiting = [n for n in announced if n in {*old} or not (n in begun or n in others)]
    old = [name for name in old if name not in waiting]
    again = [name for name in announced if name in interrupted]
    ended_now = [done[name] for name in announced if name in done]
    finished = [record.seconds for record in ended_now if record.seconds is not None]
    left = _seconds_left(finished, [*running.values()], len(waiting) + len(again))
    wrong = {name: found.reason for name, found in files.items() if not found.status}
    broken = [Broken(store.folder / f"{name}.json", reason) for name, reason in wrong.items()]
    return Overview(done, failed, running, interrupted, waiting, old, broken, left)


def _seconds_left(finished: Sequence[float], states: Sequence[State], waiting: int) -> float | None:
    """Seconds until all runs have ended, from the mean seconds of a run."""
    now, done = datetime.now(UTC), [state.step / state.steps for state in states]
    seconds = list(finished) or [
        (now - datetime.fromisoformat(state.since)).total_seconds() / part
        for state, part in zip(states, done, strict=True)
        if part > 0
    ]
    if not states or not seconds:
        return None
    left = waiting + len(states) - sum(done)
    return sum(seconds) / len(seconds) * left / len(states)


def summaries(store: Store) -> dict[str, Summary]:
    """The summary of every JSON file of a store, by its name, sorted."""
    started, index = time.time_ns(), read_model(store.folder / NAME, Index)
    indexed = index.files if index and index.code == _code() else {}
    found: dict[str, Summary] = {}
    for name, stat in store.files().items():
        old = indexed.get(name)
        if old is None or (old.modified, old.size) != (stat.st_mtime_ns, stat.st_size):
            old = _summary(store.read_file(name), stat)
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
        seconds=content.final.seconds if is_record and content.final else None,
        origin=content.origin if is_record else None,
    )


@cache
def _code() -> str:
    """SHA-256 of the modules that read records, so that no rule of an older version is believed."""
    sources = (path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return hashlib.sha256(b"".join(sources)).hexdigest()
