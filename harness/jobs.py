"""A run as a job of an engine: what is to be done, and how it ended."""

import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import torch

from harness.environment import keep_freed_memory, use_threads
from harness.provenance import is_foreign, is_outdated
from harness.records.locks import Lock
from harness.records.record import FINAL, Point, Record
from harness.records.spec import RunSpec
from harness.records.store import Store
from harness.runner import NoProgress, ProgressCallback, failure, run, save_record
from zoo.registry import UserError, in_one_line


class Job(NamedTuple):
    """A run to compute.

    Attributes:
        before: when the run of the record began that the store held before the command; empty
            where it held none.
        keep_outdated: whether a record of earlier code is a result.
        restart: whether to delete the checkpoint.
        keep_checkpoints: see `harness.runner.run`.
    """

    spec: RunSpec
    folder: Path
    rerun: bool = False
    before: str = ""
    keep_outdated: bool = False
    restart: bool = False
    keep_checkpoints: bool = False

    @property
    def store(self) -> Store:
        """The store of its record."""
        return Store(self.folder)

    @property
    def is_isolated(self) -> bool:
        """Return whether the process that computes it computes no other run after it.

        A plug-in may change anything in its process.
        """
        return is_foreign(self.spec.variants)

    @property
    def portable(self) -> "Job":
        """The job for another process, which may have another working directory."""
        return self._replace(folder=self.folder.absolute())


class Result(NamedTuple):
    """The result of a job.

    Attributes:
        state: `done` if the store holds the record, `busy` if another process computes the run,
            `died` if the process ended before the run did, `error` if no run can be computed.
        message: why; empty for `done` and `busy`.
        new: whether the run was computed now.
        trace: the traceback of a run that failed; empty otherwise.
    """

    state: Literal["done", "busy", "died", "error"]
    message: str = ""
    new: bool = False
    trace: str = ""
    warnings: tuple[str, ...] = ()


@runtime_checkable
class Pool(Protocol):
    """An engine: takes jobs, and computes several at once."""

    def can_start(self) -> bool:
        """Return whether another job would start now."""
        ...

    def submit(self, job: Job) -> None:
        """Start a job."""

    def finished(self) -> Sequence[tuple[Job, Result]]:
        """The jobs that have ended since the last call; waits a moment for one."""
        ...

    def close(self) -> None:
        """End all processes; runs in progress write a checkpoint first."""


class Reported:
    """A `ProgressCallback` that passes all calls on, and writes the state of the run as well.

    The run does not depend on the other callback: an error of it is a warning, after which no call
    is passed on.
    """

    def __init__(self, callback: ProgressCallback, lock: Lock) -> None:
        """Pass on to `callback`, and report the state to `lock`."""
        self.callback, self.lock = callback, lock

    def phase(self, name: str) -> None:
        """See `ProgressCallback.phase`."""
        self.lock.report(phase=name)
        self._show(lambda: self.callback.phase(name))

    def point(self, point: Point, steps: int) -> None:
        """See `ProgressCallback.point`."""
        self.lock.report(step=point.step)
        self._show(lambda: self.callback.point(point, steps))

    def failed(self, trace: str) -> None:
        """See `ProgressCallback.failed`."""
        self._show(lambda: self.callback.failed(trace))

    def _show(self, call: Callable[[], None]) -> None:
        try:
            call()
        except (Exception, SystemExit) as error:
            self.callback = NoProgress()
            warnings.warn(f"progress is not shown ({in_one_line(error)})", stacklevel=2)


class Trace(NoProgress):
    """Stores the traceback of a failure."""

    text = ""

    def failed(self, trace: str) -> None:
        """See `ProgressCallback.failed`."""
        self.text = trace


def take(job: Job, callback: Callable[[RunSpec], ProgressCallback]) -> Result:
    """Compute a run that no other process computes and that has no outcome.

    A run that a process of this machine has begun is continued with the threads of that process.
    `callback` shows a run that begins.

    Returns:
        `done`, or `busy` where another process computes it.

    Raises:
        UserError: the record cannot be written, or the file of its name is not a record.
        KeyboardInterrupt: Ctrl-C, or SIGTERM.
    """
    store, path = job.store, job.store.checkpoint(job.spec)
    left, threads = store.locks.state(job.spec.file_name), torch.get_num_threads()
    if left is not None and left.is_of_this_host and path.exists():
        threads = left.threads
    with use_threads(threads), _unfinished(job) as lock:
        if isinstance(lock, Result):
            return lock
        if job.restart:
            path.unlink(missing_ok=True)
        reported = Reported(callback(job.spec), lock)
        run(job.spec, store, reported, keep_checkpoints=job.keep_checkpoints)
        return Result("done", new=True)


def give_up(job: Job, reason: str) -> Result:
    """Write that a run failed, unless it has an outcome; return as `take` does.

    Raises:
        UserError: the record cannot be written, or the file of its name is not a record.
    """
    with _unfinished(job) as lock:
        if isinstance(lock, Result):
            return lock
        save_record(failure(job.spec, job.store, reason), job.store)
        return Result("done", new=True)


@contextmanager
def _unfinished(job: Job) -> Iterator[Lock | Result]:
    """The lock of a run without an outcome, else `busy` or `done`."""
    with job.store.locked(job.spec, torch.get_num_threads()) as lock:
        if lock is None:
            yield Result("busy")
        else:
            yield Result("done") if has_outcome(job.store.find(job.spec), job) else lock


def has_outcome(record: Record | None, job: Job) -> bool:
    """Return whether the record of a run is its outcome for a command.

    An earlier record is if its status is final and its code is current, unless it is to be
    repeated. The record of a run that began later is, unless that was interrupted: this command or
    another one made it.
    """
    if record is None or record.status == "interrupted":
        return False
    if record.started == job.before:
        current = job.keep_outdated or not is_outdated(record)
        return record.status in FINAL and current and not job.rerun
    return True


def execute(job: Job, threads: int) -> Result:
    """Compute a run in a process that was started for jobs, with that many CPU threads.

    Raises:
        KeyboardInterrupt: Ctrl-C, or SIGTERM.
    """
    keep_freed_memory()
    torch.set_num_threads(threads)
    trace = Trace()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = take(job, lambda spec: trace)
        except UserError as error:
            return Result("error", str(error))
        except Exception:
            return Result("error", traceback.format_exc())
    return result._replace(
        trace=trace.text, warnings=tuple(str(warned.message) for warned in caught)
    )
