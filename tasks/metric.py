"""The meaning of the numbers on a task. Nothing here imports torch: a record holds its metric."""

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

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
