"""Engines that execute the runs of a grid: in this process, in several, on Ray, under Slurm.

An engine is a module of this package with one function, `create(resources, store)`. It returns a
`concurrent.futures.Executor`, or None for this process. The executor calls each function in a
process of a machine with the folder `store` of the records. If the process ends before the call,
the future has an error. `shutdown` ends all calls; runs write a checkpoint first.
"""

import os
import sys
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import torch

from harness.environment import pick_device
from harness.records.fields import Device, require_known
from zoo.registry import UserError, require_memory

WORKER_BYTES = 2**27  # Memory of a process that has imported PyTorch, at least


@dataclass(frozen=True, kw_only=True)
class Resources:
    engine: str = "local"
    workers: int = 0
    threads: int = 0
    device: Device = "cpu"
    isolated: bool = False  # Whether each run has its own process
    # Parameters of Slurm's jobs, such as `partition` and `time`
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def runs_at_once(self) -> int:
        return self.workers or (1 if self.engine == "local" else sys.maxsize)

    @property
    def threads_of_run(self) -> int:
        share = torch.get_num_threads() // self.runs_at_once if self.engine == "local" else 1
        return self.threads or max(1, share)


def names() -> list[str]:
    return [module.name for module in iter_modules(__path__)]


def resources(
    engine: str = "local", *, workers: int = 0, threads: int = 0, device: str = "auto",
    parameters: Mapping[str, str] | None = None,
) -> Resources:  # fmt: skip
    require_known("engine", [engine], names())
    if parameters and engine != "slurm":
        raise UserError("--slurm is for jobs of Slurm; give --engine slurm as well")
    if engine == "local":
        if threads > (cores := os.cpu_count() or 1):
            message = f"--threads {threads} exceeds the {cores} CPUs of this machine; give fewer"
            raise UserError(message)
        require_memory(workers * WORKER_BYTES, f"--workers {workers}", "give fewer")
    return Resources(
        engine=engine, workers=workers, threads=threads, device=pick_device(device),
        parameters=parameters or {},
    )  # fmt: skip


def start(resources: Resources, store: Path) -> Executor | None:
    engine: Any = import_module(f"{__name__}.{resources.engine}")
    return engine.create(resources, store)
