"""The engine of runs as jobs of Slurm, through submitit; see docs/grids.md."""

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path
from types import FrameType
from typing import Any

from harness.engines import Resources
from harness.interrupts import Interrupts
from tasks.data.extras import import_extra
from zoo.registry import UserError, in_one_line

SECONDS_PER_LOOK = 0.5  # Seconds between two looks at the jobs
MINUTES = 24 * 60  # Default time limit of a job; then Slurm queues it again
# Parameters of submitit for every kind of cluster; all others are Slurm's.
SHARED = ("timeout_min", "mem_gb", "name", "stderr_to_stdout")


def create(resources: Resources, store: Path) -> Executor:
    submitit: Any = import_extra("--engine slurm", "submitit", "slurm")
    jobs = submitit.AutoExecutor(folder=store.absolute() / ".jobs")
    named = {
        name if name in SHARED else f"slurm_{name}": int(text) if text.isdecimal() else text
        for name, text in resources.parameters.items()
    }
    usual = {
        "timeout_min": MINUTES, "cpus_per_task": resources.threads_of_run,
        "gpus_per_node": int(resources.device == "cuda"),
    }  # fmt: skip
    try:
        jobs.update_parameters(**{**usual, **named})
    except (AssertionError, NameError, TypeError, ValueError) as error:
        raise UserError(f"--slurm: {' '.join(str(error).split())}; correct it") from error
    return _Jobs(jobs)


class _Jobs(Executor):
    def __init__(self, jobs: Any) -> None:
        self.jobs, self.running, self.ended = jobs, [], threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.running.append((self.jobs.submit(Requeued(fn, *args, **kwargs)), future))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        # Without waiting for the jobs.
        self.ended.set()
        for job, _ in self.running:
            job.cancel(check=False)

    def _look(self) -> None:
        while not self.ended.wait(SECONDS_PER_LOOK):
            for job, future in [entry for entry in [*self.running] if entry[0].done()]:
                self.running.remove((job, future))
                if error := job.exception():
                    future.set_exception(BrokenExecutor(in_one_line(error)))
                else:
                    future.set_result(job.result())


class Requeued:
    """A function in a job of Slurm; before its limit it writes a checkpoint and is queued again."""

    def __init__(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        self.call = fn, args, kwargs

    def __call__(self) -> Any:
        number, signals = signal.SIGUSR2, []
        requeue: Any = signal.getsignal(number)  # submitit's

        def end(*_: int | FrameType | None) -> None:
            signals.append(number)
            os.kill(os.getpid(), signal.SIGTERM)

        signal.signal(number, end)
        fn, args, kwargs = self.call
        try:
            # submitit ignores SIGTERM.
            with Interrupts():
                return fn(*args, **kwargs)
        except KeyboardInterrupt:
            if not signals:
                raise
        requeue(number, None)
        raise KeyboardInterrupt

    def checkpoint(self) -> Any:
        # submitit queues the result in place of this job.
        import submitit

        return submitit.helpers.DelayedSubmission(self)
