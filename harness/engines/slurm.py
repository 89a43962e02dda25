"""The engine that computes runs as jobs of Slurm, through submitit; see docs/grids.md."""

import os
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

from harness.engines import Resources
from harness.interrupts import Interrupts
from harness.jobs import Job, Pool, Result, execute
from tasks.data.extras import import_extra
from zoo.registry import UserError, in_one_line

SECONDS_PER_WAIT = 0.5
"""Seconds to wait for the end of a job."""

MINUTES = 24 * 60
"""Time limit of a job, after which Slurm queues it again, unless another one is given."""

SHARED = ("timeout_min", "mem_gb", "name", "stderr_to_stdout")
"""Parameters that submitit has for every kind of cluster; all others are Slurm's."""


class SlurmTask:
    """The function that a job of Slurm calls.

    Before its time limit it writes a checkpoint, and is queued again.
    """

    def __init__(self, job: Job, threads: int) -> None:
        """Compute `job` with that many CPU threads."""
        self.job, self.threads = job, threads

    def __call__(self) -> Result:
        number, signals = signal.SIGUSR2, []
        requeue: Any = signal.getsignal(number)  # submitit's

        def end(*_: int | FrameType | None) -> None:
            signals.append(number)
            os.kill(os.getpid(), signal.SIGTERM)

        signal.signal(number, end)
        try:
            # submitit ignores SIGTERM.
            with Interrupts():
                return execute(self.job, self.threads)
        except KeyboardInterrupt:
            if not signals:
                raise
        requeue(number, None)
        raise KeyboardInterrupt

    def checkpoint(self) -> Any:
        """The job that submitit queues in place of this one."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def create(resources: Resources, store: Path, callback: object) -> Pool:
    """Prepare; nothing is submitted yet. `callback` is unused: no run is of this process.

    `parameters` are options of `sbatch`, such as `partition`, and of submitit, such as
    `timeout_min`. The folder `store` is on a file system of all machines.
    """
    return _SlurmJobs(resources, store)


class _SlurmJobs:
    """A job of Slurm for each run; its scripts and logs are in the store.

    Where there is no Slurm, a job is a process of this machine.
    """

    def __init__(self, resources: Resources, store: Path) -> None:
        submitit: Any = import_extra("--engine slurm", "submitit", "slurm")
        self.workers, self.threads = resources.workers, resources.threads or 1
        self.running: list[tuple[Any, Job]] = []
        self.executor = submitit.AutoExecutor(folder=store.absolute() / ".jobs")
        named = {
            name if name in SHARED else f"slurm_{name}": int(text) if text.isdecimal() else text
            for name, text in resources.parameters.items()
        }
        try:
            self.executor.update_parameters(
                **{
                    "timeout_min": MINUTES,
                    "cpus_per_task": self.threads,
                    "gpus_per_node": int(resources.device == "cuda"),
                    **named,
                }
            )
        except (AssertionError, NameError, TypeError, ValueError) as error:
            raise UserError(f"--slurm: {' '.join(str(error).split())}; correct it") from error

    def can_start(self) -> bool:
        return not self.workers or len(self.running) < self.workers

    def submit(self, job: Job) -> None:
        self.running.append((self.executor.submit(SlurmTask(job.portable, self.threads)), job))

    def finished(self) -> list[tuple[Job, Result]]:
        time.sleep(SECONDS_PER_WAIT)
        ended = [(task, job) for task, job in self.running if task.done()]
        self.running = [entry for entry in self.running if entry not in ended]
        return [(job, self._result(task)) for task, job in ended]

    def close(self) -> None:
        # It does not wait for the jobs.
        for task, _ in self.running:
            task.cancel(check=False)

    def _result(self, task: Any) -> Result:
        error = task.exception()
        return task.result() if error is None else Result("died", in_one_line(error))
