"""A cell as a job of an engine: what is to be done, and how it ended."""

import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import torch

from harness.callbacks import NoProgress, ProgressCallback, Reported
from harness.environment import keep_freed_memory, use_threads
from harness.plan import Plan, restore
from harness.provenance import is_foreign
from harness.records.locks import Lock
from harness.records.record import FINAL, Record
from harness.records.spec import RunSpec
from harness.records.store import Store
from harness.runner import failure, run, save_record
from zoo.registry import UserError


class Job(NamedTuple):
    """A cell to run.

    Attributes:
        plan: of the cell.
        store: the folder of its record.
        rerun: whether to repeat a finished run.
        before: when the run of the record began that the store held before the command; empty
            where it held none.
        restart: whether to delete the checkpoint.
        keep: whether the run keeps its weights; see `harness.runner.run`.
        cost: whether the run measures its cost.
    """

    plan: Plan
    store: Path
    rerun: bool = False
    before: str = ""
    restart: bool = False
    keep: bool = False
    cost: bool = True

    @property
    def name(self) -> str:
        """The name of the cell's record."""
        return Store(self.store).name(self.plan.spec)

    @property
    def is_isolated(self) -> bool:
        """Whether the process that runs the cell runs no other one after it.

        A plug-in may change anything in its process; see `harness.torch_state` for what is noticed.
        """
        return is_foreign(self.plan.spec.variants)


class Result(NamedTuple):
    """How a job ended.

    Attributes:
        state: `done` if the store holds the record, `busy` if another process runs the cell, `died`
            if the process ended before the cell did, `error` if no cell can be run.
        message: why; empty for `done` and `busy`.
        new: whether the cell was run now.
        trace: the traceback of a run that failed; empty otherwise.
        warnings: those of the run.
    """

    state: Literal["done", "busy", "died", "error"]
    message: str = ""
    new: bool = False
    trace: str = ""
    warnings: tuple[str, ...] = ()


@runtime_checkable
class Pool(Protocol):
    """An engine: takes jobs, and runs several at once."""

    def can_start(self) -> bool:
        """Whether another job would start now."""
        ...

    def submit(self, job: Job) -> None:
        """Start a job."""
        ...

    def finished(self) -> Sequence[tuple[Job, Result]]:
        """The jobs that have ended since the last call; waits a moment for one."""
        ...

    def close(self) -> None:
        """End all processes; runs in progress write a checkpoint first."""
        ...


@runtime_checkable
class CellView(Protocol):
    """Shows the runs of this process."""

    def callback(self, spec: RunSpec) -> ProgressCallback:
        """Show a run that begins."""
        ...


class Trace(NoProgress):
    """A `ProgressCallback` that keeps the traceback of a failure."""

    def __init__(self) -> None:
        """No failure yet."""
        self.text = ""

    def callback(self, spec: RunSpec) -> ProgressCallback:
        """See `CellView.callback`."""
        return self

    def failed(self, trace: str) -> None:
        """See `ProgressCallback.failed`."""
        self.text = trace


def take(job: Job, view: CellView) -> bool | None:
    """Run a cell that nobody else runs and that has no outcome.

    A run that a process of this machine has begun is continued with the threads of that process.

    Returns:
        Whether it was run now; None where another process runs it.

    Raises:
        UserError: the record cannot be written, or the file of its name is not a record.
        KeyboardInterrupt: Ctrl-C, or SIGTERM.
    """
    store, spec = Store(job.store), job.plan.spec
    path = store.checkpoint(spec)
    left, threads = store.locks.state(job.name), torch.get_num_threads()
    if left is not None and left.is_of_this_host and path.exists():
        threads = left.threads
    with use_threads(threads), _locked(job) as lock:
        if lock is None:
            return None
        if has_outcome(store.find(spec), job.before, rerun=job.rerun):
            return False
        if job.restart:
            path.unlink(missing_ok=True)
        run(job.plan, store, Reported(view.callback(spec), lock), keep=job.keep, cost=job.cost)
        return True


def give_up(job: Job, reason: str) -> bool | None:
    """Write that a cell failed, unless it has an outcome; return as `take` does.

    Raises:
        UserError: the record cannot be written, or the file of its name is not a record.
    """
    store, spec = Store(job.store), job.plan.spec
    with _locked(job) as lock:
        if lock is None:
            return None
        if has_outcome(store.find(spec), job.before, rerun=job.rerun):
            return False
        save_record(failure(job.plan, store, reason), store)
        return True


@contextmanager
def _locked(job: Job) -> Iterator[Lock | None]:
    """The lock of a cell, or None where another process holds it.

    The state of the run is kept where it has a checkpoint to continue from.
    """
    store, spec = Store(job.store), job.plan.spec
    lock = store.locks.acquire(job.name, threads=torch.get_num_threads(), steps=spec.train.steps)
    try:
        yield lock
    finally:
        if lock is not None:
            lock.release(keep_state=store.checkpoint(spec).exists())


def has_outcome(record: Record | None, before: str, *, rerun: bool) -> bool:
    """Whether the record of a cell is its outcome for a command.

    One that was there `before` is if its status is final, unless it is to be repeated. One of a run
    that began later, of this command or of another, is in any case, unless it was interrupted.
    """
    if record is None or record.status == "interrupted":
        return False
    if record.started == before:
        return record.status in FINAL and not rerun
    return True


@lru_cache(maxsize=1)
def _restored(spec: str) -> Plan:
    """The plan of a run; the last one is kept, and with it the data of its task."""
    return restore(RunSpec.model_validate_json(spec))


class Order(NamedTuple):
    """A job as it is sent to another process; see `Job`."""

    spec: str
    store: Path
    rerun: bool
    before: str
    restart: bool
    keep: bool
    cost: bool
    threads: int


def order(job: Job, threads: int) -> Order:
    """The job as it is sent to a process that computes with `threads` CPU threads."""
    spec, store = job.plan.spec.model_dump_json(), job.store.absolute()
    return Order(spec, store, *job[2:], threads)


def execute(order: Order) -> Result:
    """Run a job in a process that was started for it.

    Raises:
        KeyboardInterrupt: Ctrl-C, or SIGTERM.
    """
    keep_freed_memory()
    torch.set_num_threads(order.threads)
    trace, new = Trace(), None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            new = take(Job(_restored(order.spec), *order[1:-1]), trace)
        except UserError as error:
            return Result("error", str(error))
        except Exception:
            return Result("error", traceback.format_exc())
    messages = tuple(str(one.message) for one in caught)
    if new is None:
        return Result("busy")
    return Result("done", new=new, trace=trace.text, warnings=messages)
