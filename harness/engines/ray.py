"""The engine that spreads runs over a Ray cluster; see docs/grids.md."""

import signal
from pathlib import Path
from typing import Any

from harness.engines import Resources
from harness.jobs import Job, Pool, Result, execute
from tasks.data.extras import import_extra
from zoo.registry import in_one_line

SECONDS_PER_WAIT = 0.2
"""Seconds to wait for the end of a job."""

SECONDS_TO_END = 60.0
"""Seconds in which cancelled runs may write a checkpoint."""


def create(resources: Resources, store: Path, callback: object) -> Pool:
    """Connect to the cluster; `store` and `callback` are unused: no run is of this process."""
    return _RayCluster(resources)


class _RayCluster:
    """A Ray task for each run, on the cluster of `RAY_ADDRESS`, or one of this machine.

    A task whose process or node ends before the run does counts as died; Ray does not repeat it.
    """

    def __init__(self, resources: Resources) -> None:
        self.ray: Any = import_extra("--engine ray", "ray", "ray")
        self.workers, self.threads = resources.workers, resources.threads or 1
        self.running: dict[Any, Job] = {}
        handler = signal.getsignal(signal.SIGTERM)
        self.ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        signal.signal(signal.SIGTERM, handler)  # Ray replaces it by one that exits
        gpus = int(resources.device == "cuda")
        options = {"num_cpus": self.threads, "num_gpus": gpus, "max_retries": 0}
        self.execute = self.ray.remote(**options)(execute)
        # Its process ends with it.
        self.execute_isolated = self.ray.remote(**options, max_calls=1)(execute)

    def can_start(self) -> bool:
        return not self.workers or len(self.running) < self.workers

    def submit(self, job: Job) -> None:
        remote = self.execute_isolated if job.is_isolated else self.execute
        self.running[remote.remote(job.portable, self.threads)] = job

    def finished(self) -> list[tuple[Job, Result]]:
        if not self.running:
            return []
        count = len(self.running)
        ended, _ = self.ray.wait([*self.running], num_returns=count, timeout=SECONDS_PER_WAIT)
        return [(self.running.pop(task), self._result(task)) for task in ended]

    def close(self) -> None:
        tasks = [*self.running]
        try:
            for task in tasks:
                self.ray.cancel(task, force=False)  # KeyboardInterrupt in its process
            if tasks:
                self.ray.wait(tasks, num_returns=len(tasks), timeout=SECONDS_TO_END)
        finally:
            self.ray.shutdown()

    def _result(self, task: Any) -> Result:
        try:
            return self.ray.get(task)
        except (self.ray.exceptions.RayError, KeyboardInterrupt) as error:
            return Result("died", in_one_line(error))
