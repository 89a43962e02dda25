"""Where the runs of a grid are computed: here, in workers, on a Ray cluster, under Slurm.

An engine is a module of this package, whose `Pool` the decorator `engine` registers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Literal, TypeVar

# A worker imports this package before it has its share of the machine, so not torch.
if TYPE_CHECKING:
    from harness.engines.jobs import CellView, Pool


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What the runs of a grid may use.

    Attributes:
        engine: its name.
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


Factory = Callable[[Resources, Path, "CellView"], "Pool"]
"""Makes an engine for runs whose records are in a folder; the view shows runs of this process."""

F = TypeVar("F", bound=Factory)

_REGISTERED: dict[str, Factory] = {}


def engine(name: str) -> Callable[[F], F]:
    """A decorator: the class or function makes the engine of that name."""

    def register(factory: F) -> F:
        _REGISTERED[name] = factory
        return factory

    return register


@cache
def engines() -> Mapping[str, Factory]:
    """Every engine of this package by name."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return _REGISTERED


def create(resources: Resources, store: Path, view: "CellView") -> "Pool":
    """The engine for runs whose records are in `store`; `view` shows runs of this process.

    Raises:
        UserError: the engine is not installed, or does not accept its parameters.
    """
    return engines()[resources.engine](resources, store, view)
