"""The data of a cell: its task, and the splits of it that memory holds."""

import torch

from harness.records.spec import RunSpec
from tasks import Task, create
from tasks.blocks import shuffle_blocks
from tasks.contract import SPLITS, Split, SplitName
from zoo.registry import UserError, in_one_line

TOO_LARGE = ("array is too big", "Maximum allowed dimension")
"""What numpy says of sizes that no machine could hold."""


def find_task(spec: RunSpec) -> Task:
    """The task that `spec` names, with its options.

    Raises:
        UserError: there is none, or its version is not the one that `spec` was made for.
    """
    task = shuffle_blocks(create(spec.task.name, **spec.task.options), spec.task.block)
    if task.key != spec.task.key:
        raise UserError(f"task {spec.task.key!r} is {task.key!r} by now; make the run anew")
    return task


def digests(task: Task) -> dict[str, str]:
    """SHA-256 of each split of `task`, by its name."""
    return {name: task.load(name).digest() for name in SPLITS}


def load(spec: RunSpec, task: Task, split: SplitName) -> Split:
    """A split of `task`, which is the task of `spec`.

    Raises:
        UserError: its data are missing or damaged, or the memory does not hold them.
    """
    try:
        return task.load(split)
    except (MemoryError, OverflowError, RuntimeError, ValueError) as error:
        too_large = isinstance(error, ValueError) and str(error).startswith(TOO_LARGE)
        if not (too_large or isinstance(error, OverflowError) or is_out_of_memory(error)):
            raise
        raise UserError(
            f"{task.key} cannot be held in memory here ({in_one_line(error)}); lower its lengths, "
            f"or its splits as in --set {spec.task.name}.train=1000"
        ) from error


def is_out_of_memory(error: Exception) -> bool:
    """Whether the memory did not hold what was asked of it."""
    # torch's CPU allocator has no error type of its own.
    refused = isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    return refused or isinstance(error, MemoryError | torch.OutOfMemoryError)
