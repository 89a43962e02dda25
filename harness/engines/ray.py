"""The engine of runs on a Ray cluster; see docs/grids.md."""

import signal
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any

from harness.engines import Resources
from tasks.data.extras import import_extra

SECONDS_TO_END = 60.0  # Seconds in which cancelled runs may write a checkpoint


def create(resources: Resources, store: Path) -> Executor:
    return _Cluster(resources)


class _Cluster(Executor):
    def __init__(self, resources: Resources) -> None:
        self.ray: Any = import_extra("--engine ray", "ray", "ray")
        handler = signal.getsignal(signal.SIGTERM)
        self.ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        signal.signal(signal.SIGTERM, handler)  # Ray's would exit
        self.call: Any = self.ray.remote(
            num_cpus=resources.threads_of_run, num_gpus=int(resources.device == "cuda"),
            max_retries=0, max_calls=int(resources.isolated),
        )(_call)  # fmt: skip
        self.tasks: list[Any] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.tasks.append(self.call.remote(partial(fn, *args, **kwargs)))
        return self.tasks[-1].future()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        try:
            for task in self.tasks:
                self.ray.cancel(task, force=False)  # KeyboardInterrupt in its process
            if count := len(self.tasks):
                self.ray.wait(self.tasks, num_returns=count, timeout=SECONDS_TO_END)
        finally:
            self.ray.shutdown()


def _call(call: Callable[[], Any]) -> Any:
    return call()
