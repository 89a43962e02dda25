"""The metrics: `tasks.metrics.find("accuracy")`; the answers of a task name one.

Returns are measured by rollouts, see `tasks.control.windows`: 100 (return - random) / (expert -
random), a mean over episodes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tasks.metric import Metric
from zoo.registry import Registry, UserError


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


def _correct(answers: Any, scores: Any, targets: Any) -> Any:
    return answers.correct(scores, targets)


def _losses(answers: Any, scores: Any, targets: Any) -> Any:
    return answers.losses(scores, targets)


def _no_values(answers: Any, scores: Any, targets: Any) -> Any:
    raise UserError("the normalised return is measured by rollouts; leave train.best_on_test out")


_accuracy = Metric(name="accuracy", unit="%", better="higher", digits=1, scale=100)
_perplexity = Metric(name="perplexity", unit="", better="lower", digits=1, exponential=True)
_bits = Metric(
    name="bits per byte", unit="bits per byte", better="lower", digits=3, scale=1 / math.log(2)
)
_error = Metric(name="squared error", unit="", better="lower", digits=4)
_return = Metric(name="normalised return", unit="", better="higher", digits=1, chance=0.0)

register("accuracy")(Measure(_accuracy, _correct, lambda classes: 1 / classes, single_answers=True))
register("perplexity")(Measure(_perplexity, _losses, math.log))
register("bits-per-byte")(Measure(_bits, _losses, math.log))
register("squared-error")(Measure(_error, _losses))
register("normalised-return")(Measure(_return, _no_values))
