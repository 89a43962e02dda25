"""The data of a task: splits and digests, each computed once."""

import json
import logging
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import torch

from harness.records.spec import RunSpec, TaskSpec
from tasks import Task, create
from tasks.contract import SPLITS, Split, SplitName
from tasks.data.sources import GeneratedTask
from tasks.metrics import Metric
from zoo.registry import UserError, in_one_line
from zoo.variants import variants

LOG = logging.getLogger(__name__)
TOO_LARGE = ("array is too big", "Maximum allowed dimension")  # Messages of NumPy


class Summary(NamedTuple):
    digests: Mapping[SplitName, str]
    sizes: Mapping[SplitName, int]
    metric: Metric
    dev_metric: Metric


class Data:
    """The data of a task, read on first use; splits of one task at a time are in memory."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._splits: dict[SplitName, Split] = {}

    @classmethod
    def of(cls, task: Task) -> "Data":
        return _READ.setdefault((type(task), task.key), cls(task))

    @property
    def splits(self) -> Mapping[SplitName, Split]:
        if not self._splits:
            for other in _READ.values():
                other._splits = {}
            self._splits = {name: self._load(name) for name in SPLITS}
        return self._splits

    @property
    def digests(self) -> Mapping[SplitName, str]:
        return self.summary.digests

    @cached_property
    def summary(self) -> Summary:
        splits, classes = self.splits, self.task.classes
        return Summary(
            digests={name: split.digest() for name, split in splits.items()},
            sizes={name: len(split) for name, split in splits.items()},
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


_READ: dict[tuple[type[Task], str], Data] = {}
_TASKS: dict[str, Task] = {}


def data_of(spec: TaskSpec) -> Data:
    name = json.dumps([spec.name, spec.options])
    if name not in _TASKS:
        _TASKS[name] = create(spec.name, **spec.options)
    task = _TASKS[name]
    if task.key != spec.key:
        raise UserError(f"the run is of task {spec.key!r}, which is now {task.key!r}; run it again")
    if isinstance(task, GeneratedTask) and not task.is_cached():
        LOG.info("%s: generate data", task.key)
    data = Data.of(task)
    if spec.digests and {**data.digests} != spec.digests:
        raise UserError(f"the data of {task.key} have changed since the run; run it again")
    return data


def restore(spec: RunSpec) -> Data:
    for name in spec.variants:
        variants.find(name)
    return data_of(spec.task)


def forget() -> None:
    # Before a command of a long process: files may have changed.
    _READ.clear()
    _TASKS.clear()


def is_out_of_memory(error: BaseException) -> bool:
    # torch's CPU allocator has no error type.
    failed = isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    return failed or isinstance(error, MemoryError | torch.OutOfMemoryError)
