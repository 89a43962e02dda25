"""The data of a task: its splits and their digests, each computed once."""

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple
from weakref import WeakValueDictionary

import torch

from tasks import Task
from tasks.contract import SPLITS, Split, SplitName
from tasks.metric import Metric
from zoo.registry import UserError, in_one_line

TOO_LARGE = ("array is too big", "Maximum allowed dimension")
"""The first words of numpy's messages about sizes that exceed the address space."""


class Summary(NamedTuple):
    """A summary of data whose splits may be released.

    Attributes:
        digests: SHA-256 of each split, by its name.
        sizes: examples of each split, by its name.
        has_target_positions: whether targets are at positions, rather than one for each example.
    """

    digests: Mapping[SplitName, str]
    sizes: Mapping[SplitName, int]
    has_target_positions: bool
    metric: Metric
    dev_metric: Metric


class Data:
    """The data of a task, read and hashed on first use.

    Splits of one task at a time are in memory; digests and sizes are cached.
    """

    def __init__(self, task: Task) -> None:
        """Create the data of `task`; nothing is read yet."""
        self.task = task
        self._splits: dict[SplitName, Split] = {}

    @classmethod
    def of(cls, task: Task) -> "Data":
        """The data of `task`; the same object for as long as any part of the process uses it."""
        return _IN_USE.setdefault((type(task), task.key), cls(task))

    @property
    def splits(self) -> Mapping[SplitName, Split]:
        """Every split, on the CPU.

        Raises:
            UserError: data are missing or damaged, or do not fit in memory.
        """
        if not self._splits:
            for other in list(_IN_USE.values()):
                other._splits = {}
            self._splits = {name: self._load(name) for name in SPLITS}
        return self._splits

    @property
    def digests(self) -> Mapping[SplitName, str]:
        """SHA-256 of each split, by its name."""
        return self.summary.digests

    @cached_property
    def summary(self) -> Summary:
        """The summary, which outlives the splits."""
        splits, classes = self.splits, self.task.classes
        return Summary(
            digests={name: split.digest() for name, split in splits.items()},
            sizes={name: len(split) for name, split in splits.items()},
            has_target_positions=splits["test"].target_positions is not None,
            metric=splits["test"].answers.metric_of(classes),
            dev_metric=splits["dev"].answers.metric_of(classes),
        )

    def _load(self, name: SplitName) -> Split:
        owner = self.task.key.partition("@")[0]
        try:
            return self.task.load(name)
        except SystemExit as error:
            # A plug-in must not end the process with its exit code.
            raise UserError(
                f"task {owner!r} exits with {error.code!r} when its data are loaded; correct it"
            ) from error
        except (MemoryError, OverflowError, RuntimeError, ValueError) as error:
            too_large = isinstance(error, ValueError) and str(error).startswith(TOO_LARGE)
            if not (too_large or isinstance(error, OverflowError) or is_out_of_memory(error)):
                raise
            raise UserError(
                f"{self.task.key} does not fit in memory ({in_one_line(error)}); lower its "
                f"lengths, or the size of its splits, for example --set {owner}.train=1000"
            ) from error


_IN_USE: WeakValueDictionary[tuple[type[Task], str], Data] = WeakValueDictionary()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation failed, on the CPU or on a GPU."""
    # torch's CPU allocator has no error type.
    failed = isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    return failed or isinstance(error, MemoryError | torch.OutOfMemoryError)
