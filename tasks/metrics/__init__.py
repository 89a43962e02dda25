"""The metrics, one file each: `tasks.metrics.find("accuracy")`.

A file registers a `Measure`; the answers of a task name it, see `tasks.answers`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tasks.metric import Metric
from zoo.registry import Registry


@dataclass(frozen=True)
class Measure:
    """A metric, and the number for each answer whose mean it shows.

    Attributes:
        metric: without `chance`, which depends on the task.
        values: from the kind of answers, the scores (*answers, classes) and the targets, a tensor
            of one number for each target: boolean, or float32 and 0 where there is no target.
        chance: from the number of classes, the mean of `values` of uniform guesses; None without.
        single_answers: whether a value says that an answer is correct, so that what gives answers
            without scores, as most of `tasks.baselines` do, can be compared.
    """

    metric: Metric
    values: Callable[[Any, Any, Any], Any]
    chance: Callable[[int], float | None] = lambda classes: None
    single_answers: bool = False


metrics: Registry[Measure] = Registry("metric", "tasks.metrics", group="tasks.metrics")

register, find, names = metrics.register, metrics.find, metrics.names
