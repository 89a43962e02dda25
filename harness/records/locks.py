"""Locks of runs: at most one process computes a run; and the state of runs in progress.

A lock is a lock of the operating system on a file in the hidden folder `.locks` of a store, and
ends with its process. The state of the run is a file next to it. docs/grids.md has file systems.
"""

import os
import platform
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

import filelock
import psutil
from pydantic import ValidationError

from harness.records.fields import Count, Frozen, Time, now
from harness.records.files import usable, write_atomic
from harness.records.record import Point

FOLDER = ".locks"
SECONDS_PER_STATE = 2.0  # Minimum seconds between two writes of the step of a run


class State(Frozen):
    """The process that executes a run, and its progress: a phase, and the last point it reached."""

    host: str
    pid: int
    since: Time
    threads: Count
    phase: str = "start"
    point: Point | None = None
    steps: Count

    @property
    def is_of_this_host(self) -> bool:
        return self.host == platform.node()

    @property
    def step(self) -> int:
        return self.point.step if self.point else 0


class Lock:
    def __init__(self, held: filelock.AcquireReturnProxy, path: Path, state: State) -> None:
        self.state, self._held, self._path, self._write_at = state, held, path, 0.0
        self.report()

    def report(self, **changes: str | Point) -> None:
        # Best effort: write errors are ignored.
        self.state = self.state.model_copy(update=changes)
        if "phase" in changes or time.monotonic() > self._write_at:
            self._write_at = time.monotonic() + SECONDS_PER_STATE
            with suppress(OSError):
                write_atomic(self._path, self.state.model_dump_json().encode())

    def release(self, *, keep_state: bool) -> None:
        if not keep_state:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
        self._held.lock.release()


class Locks:
    def __init__(self, store: Path) -> None:
        self.folder = store / FOLDER

    def acquire(self, name: str, *, threads: int, steps: int) -> Lock | None:
        if (held := self._lock(name)) is None:
            return None
        state = State(
            host=platform.node(), pid=os.getpid(), since=now(), threads=threads, steps=steps
        )
        return Lock(held, self._path(name, "json"), state)

    @contextmanager
    def unused(self, name: str) -> Iterator[bool]:
        # Other processes cannot take the lock inside the block.
        path, held = self._path(name, "lock"), None
        if not path.exists():
            yield True
            return
        with suppress(OSError):  # a file of another user
            held = _try(path)
        with held or nullcontext():
            yield held is not None

    def alone(self, name: str) -> AbstractContextManager[object]:
        return self._lock(name, wait=True) or nullcontext()

    def is_held(self, name: str) -> bool:
        with self.unused(name) as unused:
            return not unused

    def forget(self, name: str) -> None:
        with suppress(OSError):
            self._path(name, "json").unlink(missing_ok=True)

    def state(self, name: str) -> State | None:
        path = self._path(name, "json")
        with suppress(OSError, ValidationError):
            # Opening a named pipe would block forever.
            return State.model_validate_json(path.read_bytes()) if path.is_file() else None

    def states(self) -> dict[str, State]:
        names = [path.stem for path in sorted(self.folder.glob("[!.]*.json"))]
        return {name: state for name in names if (state := self.state(name))}

    def running_here(self) -> int:
        here = [state for state in self.states().values() if state.is_of_this_host]
        return sum(psutil.pid_exists(state.pid) for state in here)

    def _lock(self, name: str, *, wait: bool = False) -> filelock.AcquireReturnProxy | None:
        path = self._path(name, "lock")
        with usable(path, "locked", "give a --store on a file system with locks (flock)"):
            self.folder.mkdir(parents=True, exist_ok=True)
            return _try(path, wait)

    def _path(self, name: str, suffix: str) -> Path:
        return self.folder / f"{name}.{suffix}"


def _try(path: Path, wait: bool = False) -> filelock.AcquireReturnProxy | None:
    with suppress(filelock.Timeout):
        return filelock.FileLock(path).acquire(blocking=wait)
