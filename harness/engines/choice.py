"""The engine that the options of a command name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

from harness.engines.jobs import CellView, Pool
from harness.engines.serial import Serial

ENGINES = ("local", "ray", "slurm")
"""This machine; a Ray cluster; jobs of Slurm."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What the cells of a grid may use.

    Attributes:
        engine: one of `ENGINES`.
        workers: cells at once; 0 for as many as there is room for, which is 1 on this machine.
        threads: CPU threads of a cell; 0 for a share of this machine's, or 1 of another machine.
        device: the kind on which cells run; with `cuda` each has a GPU.
        parameters: of Slurm's jobs, such as `partition` and `time`, by name.
    """

    engine: str = "local"
    workers: int = 0
    threads: int = 0
    device: Literal["cpu", "cuda"] = "cpu"
    parameters: Mapping[str, str] = field(default_factory=dict)


def create(resources: Resources, store: Path, view: CellView) -> Pool:
    """The engine for cells whose records are in `store`; `view` shows runs of this process.

    Raises:
        UserError: the engine is not installed, or does not accept its parameters.
    """
    threads, workers = resources.threads, resources.workers
    if resources.engine == "ray":
        from harness.engines.ray import RayCluster

        return RayCluster(workers, threads or 1, resources.device == "cuda")
    if resources.engine == "slurm":
        from harness.engines.slurm import SlurmJobs

        folder = store / ".jobs"
        return SlurmJobs(folder, workers, threads or 1, resources.device, resources.parameters)
    from harness.engines.local import Workers, visible_gpus

    if workers > 1:
        share = threads or max(1, torch.get_num_threads() // workers)
        return Workers(workers, share, visible_gpus() if resources.device == "cuda" else ())
    torch.set_num_threads(threads or torch.get_num_threads())
    return Serial(view, Workers(1, torch.get_num_threads()))
