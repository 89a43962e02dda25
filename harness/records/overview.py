"""The state of a store at any time: runs that are done, running, interrupted, failed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel

from harness.records.files import read_file
from harness.records.locks import State
from harness.records.record import FINAL, Status, origin_of
from harness.records.sources import outdated
from harness.records.spec import TaskSpec
from harness.records.store import Broken, Store, parse
from zoo.registry import Value


class Question(BaseModel):
    """What an overview needs of a question."""

    task: TaskSpec


class Specification(BaseModel):
    """What an overview needs of a specification."""

    question: Question
    options: Mapping[str, Mapping[str, Value]]
    data: dict[str, str]


class Summary(BaseModel):
    """What an overview needs of a record: read in a twentieth of the time of the whole."""

    schema_version: Literal[4]
    spec: Specification
    status: Status
    reason: str
    started: str
    implementations: Mapping[str, str]
    files: dict[str, str] = {}


class Overview(NamedTuple):
    """The runs of a store, each in one of the groups.

    Attributes:
        done: names of the runs with a final status whose code and data are current.
        failed: the reason of each run that failed, by name.
        running: the states of runs that a process makes now, by name.
        interrupted: what is known of the runs that can be continued, by name.
        outdated: names of other runs with a final status; see `harness.records.sources.outdated`.
        broken: files and lines that are not records.
    """

    done: list[str]
    failed: dict[str, str]
    running: dict[str, State]
    interrupted: dict[str, State | None]
    outdated: list[str]
    broken: list[Broken]


def overview(store: Store) -> Overview:
    """Look at a store; nothing in it changes."""
    found = {name: parse(read_file(at, "run") if isinstance(at, Path) else at, Summary)
             for name, at in store.entries().items()}  # fmt: skip
    broken = [run for run in found.values() if isinstance(run, Broken)]
    states = store.locks.states()
    running = {name: state for name, state in states.items() if store.locks.is_held(name)}
    ended = {name: run for name, run in found.items()
             if isinstance(run, Summary) and name not in running}  # fmt: skip
    final = {name: run for name, run in ended.items() if run.status in FINAL}
    is_old = dict(zip(final, outdated([*map(origin_of, final.values())]), strict=True))
    failed = {name: run.reason for name, run in ended.items() if run.status == "failed"}
    saved = (path.stem for path in store.folder.glob("*.checkpoint"))
    begun = {*states, *saved, *ended} - {*running, *final, *failed}
    return Overview(
        [name for name in final if not is_old[name]], failed, running,
        {name: states.get(name) for name in sorted(begun)},
        [name for name in final if is_old[name]], broken,
    )  # fmt: skip
