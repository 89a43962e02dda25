"""Engines that compute the runs of a grid: here, in workers, on a Ray cluster, under Slurm.

An engine is a module of this package, whose `create` makes a `harness.jobs.Pool` for runs whose
records are in a folder; its last argument gives the callback of a run of this process.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Literal

from zoo.registry import UserError, require_memory, unknown

if TYPE_CHECKING:
    from harness.jobs import Pool
    from harness.records.spec import RunSpec
    from harness.runner import ProgressCallback


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources of the runs of a grid.

    Attributes:
        workers: runs at once; 0 for as many as there is room for, which is 1 on this machine.
        threads: CPU threads of a run; 0 for a share of this machine's, or 1 of another machine.
        device: the kind on which runs are trained; with `cuda` each has a GPU.
        parameters: of Slurm's jobs, such as `partition` and `time`, by name.
    """

    engine: str = "local"
    workers: int = 0
    threads: int = 0
    device: Literal["cpu", "cuda"] = "cpu"
    parameters: Mapping[str, str] = field(default_factory=dict)


WORKER_BYTES = 2**27
"""What a process takes that has imported PyTorch, at least."""


def names() -> list[str]:
    """Every engine; none is imported."""
    return [module.name for module in iter_modules(__path__)]


def resources(
    engine: str = "local", *, workers: int = 0, threads: int = 0, device: str = "auto",
    parameters: Mapping[str, str] | None = None,
) -> Resources:  # fmt: skip
    """The resources of runs; see `Resources`.

    Raises:
        UserError: there is no such engine or device, or this machine has fewer CPUs, or no memory
            for as many workers.
    """
    from harness.environment import pick_device

    if engine not in names():
        raise UserError(unknown("engine", engine, names()))
    if parameters and engine != "slurm":
        raise UserError("--slurm is for jobs of Slurm; give --engine slurm as well")
    if engine == "local":
        if threads > (cores := os.cpu_count() or 1):
            raise UserError(
                f"--threads {threads} exceeds the {cores} CPUs of this machine; give fewer"
            )
        require_memory(workers * WORKER_BYTES, f"--workers {workers}", "give fewer")
    return Resources(
        engine=engine, workers=workers, threads=threads, device=pick_device(device),
        parameters=parameters or {},
    )  # fmt: skip


def create(
    resources: Resources, store: Path, callback: "Callable[[RunSpec], ProgressCallback]"
) -> "Pool":
    """The engine that `resources` name, for runs whose records are in `store`.

    Raises:
        UserError: the engine is not installed, or does not accept its parameters.
    """
    engine: Any = import_module(f"{__name__}.{resources.engine}")
    return engine.create(resources, store, callback)
