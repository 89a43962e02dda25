"""The state of a store at any time: runs that are done, running, interrupted, failed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel

from harness.records.files import read_file
from harness.records.locks import State
from harness.records.record import FINAL, Status, origin_of
from harness.records.spec import TaskSpec
from harness.records.store import Broken, Store, parse
from harness.records.versions import outdated
from zoo.registry import Value

SAVED = "with a checkpoint or a record"
"""What is known of an interrupted run whose process has left no state."""


class Question(BaseModel):
    """The fields of a question that an overview needs."""

    task: TaskSpec


class Specification(BaseModel):
    """The fields of a specification that an overview needs."""

    question: Question
    options: Mapping[str, Mapping[str, Value]]
    data: dict[str, str]


class Summary(BaseModel):
    """The fields of a record that an overview needs, read in a twentieth of the time of all."""

    schema_version: Literal[5]
    spec: Specification
    status: Status
    reason: str
    started: str
    versions: Mapping[str, str]
    training: str
    files: dict[str, str] = {}


class Entry(NamedTuple):
    """A run of a store, why it failed, or what an interrupted run has saved.

    Its status is `done` or `outdated` if it has a final status, by whether its code and data are
    current; else `running`, `interrupted` or `failed`. `state` is of the process that has begun it.
    """

    status: str
    name: str
    reason: str = ""
    state: State | None = None


def overview(store: Store) -> tuple[list[Entry], list[Broken]]:
    """Every run of a store, and what is not a record; nothing in the store changes."""
    found = {name: parse(read_file(at, "run") if isinstance(at, Path) else at, Summary)
             for name, at in store.entries().items()}  # fmt: skip
    states = store.locks.states()
    running = {name: state for name, state in states.items() if store.locks.is_held(name)}
    ended = {name: run for name, run in found.items()
             if isinstance(run, Summary) and name not in running}  # fmt: skip
    final = {name: run for name, run in ended.items() if run.status in FINAL}
    is_old = dict(zip(final, outdated([*map(origin_of, final.values())]), strict=True))
    failed = {name: run.reason for name, run in ended.items() if run.status == "failed"}
    saved = (path.stem for path in store.folder.glob("*.checkpoint"))
    begun = sorted({*states, *saved, *ended} - {*running, *final, *failed})
    entries = [Entry("running", name, state=state) for name, state in running.items()]
    entries += (Entry("interrupted", name, "" if name in states else SAVED, states.get(name))
                for name in begun)  # fmt: skip
    entries += (Entry("failed", name, reason) for name, reason in failed.items())
    entries += (Entry("outdated" if is_old[name] else "done", name) for name in final)
    return entries, [run for run in found.values() if isinstance(run, Broken)]
