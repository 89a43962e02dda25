"""The metrics: `tasks.metrics.find("accuracy")`; the answers of a task name one.

Returns are measured by rollouts, see `tasks.control.windows`: 100 (return - random) / (expert -
random), a mean over episodes. Nothing here imports torch: a record holds its metric.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from zoo.registry import Registry, UserError

LARGEST = 700.0
"""The largest exponent: the exponential of more nats is no finite number."""


class Metric(BaseModel):
    """A score on a task: a function of the mean of one number for each answer.

    Attributes:
        name: in words, as `bits per byte`.
        unit: behind a value, as `%`; empty where the name says it.
        better: whether a higher or a lower value is better.
        digits: after the point.
        scale: the score is this times the mean,
        exponential: or the exponential of the mean.
        chance: the score of uniform guesses on the task; None where there are none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field(min_length=1)
    unit: str
    better: Literal["higher", "lower"]
    digits: int = Field(ge=0, le=9)
    scale: float = Field(default=1.0, gt=0)
    exponential: bool = False
    chance: float | None = None

    @property
    def sign(self) -> int:
        """1 where a higher value is better, else -1."""
        return 1 if self.better == "higher" else -1

    @property
    def title(self) -> str:
        """The name with the unit, for a heading: `accuracy, %`."""
        return self.name if self.unit in ("", self.name) else f"{self.name}, {self.unit}"

    def value(self, mean: float) -> float:
        """The score of a mean."""
        return math.exp(min(mean, LARGEST)) if self.exponential else self.scale * mean

    def mean(self, value: float) -> float:
        """The mean of a score: the inverse of `value`."""
        return math.log(value) if self.exponential else value / self.scale

    def text(self, value: float) -> str:
        """A score as text, without its unit."""
        return f"{value:z,.{self.digits}f}"

    def sentence(self, value: float) -> str:
        """A score with its unit, or else its name: `47.0 %`, `perplexity 12.3`."""
        text = self.text(value)
        return f"{text} {self.unit}" if self.unit else f"{self.name} {text}"


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


def _losses(answers: Any, scores: Any, targets: Any) -> Any:
    return answers.losses(scores, targets)


def _no_values(*_: Any) -> Any:
    raise UserError("the normalised return is measured by rollouts; leave train.best_on_test out")


_accuracy = Metric(name="accuracy", unit="%", better="higher", digits=1, scale=100)
_perplexity = Metric(name="perplexity", unit="", better="lower", digits=1, exponential=True)
_bits = Metric(
    name="bits per byte", unit="bits per byte", better="lower", digits=3, scale=1 / math.log(2)
)
_error = Metric(name="squared error", unit="", better="lower", digits=4)
_return = Metric(name="normalised return", unit="", better="higher", digits=1, chance=0.0)

register("accuracy")(Measure(
    _accuracy, lambda answers, scores, targets: answers.correct(scores, targets),
    lambda classes: 1 / classes, single_answers=True,
))  # fmt: skip
register("perplexity")(Measure(_perplexity, _losses, math.log))
register("bits-per-byte")(Measure(_bits, _losses, math.log))
register("squared-error")(Measure(_error, _losses))
register("normalised-return")(Measure(_return, _no_values))
