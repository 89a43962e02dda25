"""Types of the fields of records."""

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from harness.records.spec import Frozen

Fraction = Annotated[float, Field(ge=0, le=1)]
"""An accuracy."""

Positive = Annotated[float, Field(gt=0, lt=1e15)]
"""A measured time, rate or ratio."""

Seconds = Annotated[float, Field(ge=0, lt=1e15)]
"""Elapsed time."""


def _check_time(text: str) -> str:
    if datetime.fromisoformat(text).utcoffset() != timedelta(0):
        raise ValueError("it is not in UTC")
    return text


Time = Annotated[str, AfterValidator(_check_time)]
"""A date and time in UTC, ISO 8601."""


class Quartiles(Frozen):
    """Quartiles of repeated measurements, in order."""

    q1: Positive
    median: Positive
    q3: Positive

    @model_validator(mode="after")
    def _ordered(self) -> "Quartiles":
        if not self.q1 <= self.median <= self.q3:
            raise ValueError(
                f"q1={self.q1}, median={self.median} and q3={self.q3} are not in order"
            )
        return self
