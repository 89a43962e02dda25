"""The execution of one run, by one process at a time: under its lock, here or on an engine."""

import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from harness.environment import keep_freed_memory, use_threads
from harness.records.locks import Lock, State
from harness.records.record import Record
from harness.records.spec import RunSpec
from harness.records.store import Store
from harness.runner import failure, run, save_record
from zoo.registry import UserError, in_one_line


class Result(NamedTuple):
    """The end of the execution of a run.

    Attributes:
        record: that the store holds; None if another process executes the run, or with an `error`.
        new: whether the run was executed now.
        error: the reason why no run can be executed.
        trace: the traceback of a run that failed; empty otherwise.
    """

    record: Record | None = None
    new: bool = False
    error: str = ""
    trace: str = ""
    warnings: tuple[str, ...] = ()


class Reported:
    """Writes the state of a run beside its lock, and passes it to `show`.

    The run does not depend on `show`: an error of it is a warning, after which it is not called.
    """

    def __init__(self, lock: Lock, show: Callable[[State], None]) -> None:
        self.lock, self.show, self.trace = lock, show, ""

    def __call__(self, what: str, value: Any) -> None:
        """Report as `harness.runner.Report`, and keep a traceback for the result."""
        if what == "trace":
            self.trace = value
            return
        self.lock.report(**{what: value})
        try:
            self.show(self.lock.state)
        except (Exception, SystemExit) as error:
            self.show = nothing
            warnings.warn(f"progress is not shown ({in_one_line(error)})", stacklevel=2)


def nothing(state: State) -> None:
    """Show nothing."""


def execute(
    spec: RunSpec,
    store: Store,
    *,
    before: str = "",
    failed: str = "",
    show: Callable[[State], None] = nothing,
    keep_checkpoints: bool = False,
) -> Result:
    """Execute a run that no other process executes and that has no new outcome.

    An interrupted run of this machine is continued with the threads of the process that began it. A
    record in the store is the outcome if its run did not begin at `before` and was not interrupted.
    With a reason in `failed` the run is recorded as failed instead. `show` is called with each new
    state. For `keep_checkpoints` see `harness.runner.run`.

    Raises:
        KeyboardInterrupt: Ctrl-C, or SIGTERM.
    """
    left, threads = store.locks.state(spec.file_name), torch.get_num_threads()
    if left is not None and left.is_of_this_host and store.checkpoint(spec).exists():
        threads = left.threads
    with use_threads(threads), store.locked(spec, torch.get_num_threads()) as lock:
        if lock is None:
            return Result()
        found = store.find(spec)
        if found and found.started != before and found.status != "interrupted":
            return Result(found)
        reported = Reported(lock, show)
        if failed:
            record = save_record(failure(spec, store, failed), store, found)
        else:
            record = run(spec, store, reported, found=found, keep_checkpoints=keep_checkpoints)
        return Result(record, new=True, trace=reported.trace)


def execute_elsewhere(spec: RunSpec, folder: Path, threads: int, **how: Any) -> Result:
    """Call `execute` in a process of an engine, with that many CPU threads.

    Errors, and warnings, are part of the result.

    Raises:
        KeyboardInterrupt: Ctrl-C, or SIGTERM.
    """
    keep_freed_memory()
    torch.set_num_threads(threads)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = execute(spec, Store(folder), **how)
        except UserError as error:
            result = Result(error=str(error))
        except Exception:
            result = Result(error=traceback.format_exc())
    return result._replace(warnings=tuple(str(warned.message) for warned in caught))
