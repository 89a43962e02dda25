"""Tasks: real and generated data sets with fixed splits, and the baselines of each.

>>> import tasks
>>> task = tasks.create("listops", min_len=10, max_len=64)
>>> train = task.load("train")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from zoo.registry import Value, build, checked, resolve

if TYPE_CHECKING:
    from tasks.contract import Batch, Split, Task

BASELINES_VERSION = 8
"""Incremented when a baseline of any task is added, or computed differently: see `tasks.baselines`.

It is here because readers of stored baselines do not import torch.
"""

__all__ = ["BASELINES_VERSION", "Batch", "Split", "Task", "create", "names"]


@checked
def create(name: str, **options: Value) -> "Task":
    """The task of that name with those options; the others have their defaults."""
    from tasks.contract import Task
    from tasks.registry import tasks

    factory = tasks.find(name)
    resolved = resolve(name, factory, options)

    def make() -> Task:
        task = factory(**resolved)
        for attribute in (*Task.__annotations__, "key"):
            getattr(task, attribute)
        return task

    return build(f"task {name!r}", make)


@checked
def names() -> list[str]:
    """The registered tasks, sorted."""
    from tasks.registry import tasks

    return tasks.names()


def __getattr__(name: str) -> Any:
    if name in ("Batch", "Split", "Task"):  # these import torch
        return getattr(import_module("tasks.contract"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
