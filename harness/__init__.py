"""Runs comparisons of attention variants, and reads their records as data frames.

harness.run("primal", task="mqar", seeds=[0, 1], train={"steps": 100}, primal={"rank": 8})
"""

from pkgutil import resolve_name
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.api import check, cost, load, run
    from reports.api import advise, matrix

__all__ = ["advise", "check", "cost", "load", "matrix", "run"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Imported here: the command line starts without pydantic, and a run without tables.
    module = "reports.api" if name in ("advise", "matrix") else "harness.api"
    return globals().setdefault(name, resolve_name(f"{module}:{name}"))
