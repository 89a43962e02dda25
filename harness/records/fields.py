"""The base class of records, and types of their fields."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_serializer

from zoo.registry import UserError, unknown

Count = Annotated[int, Field(ge=1, lt=2**63)]
Natural = Annotated[int, Field(ge=0)]
Probability = Annotated[float, Field(ge=0, lt=1)]  # A dropout probability or a momentum
Precision = Literal["bf16", "fp32"]  # The precision of matrix products
Device = Literal["cpu", "cuda"]
Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, lt=1e15)]
Rate = Annotated[float, Field(gt=0, lt=1e6)]  # A learning rate; a much larger one overflows in fp32
Seconds = Annotated[float, Field(ge=0, lt=1e15)]
IdentifiedT = TypeVar("IdentifiedT", bound="Identified")


def _check_time(text: str) -> str:
    if datetime.fromisoformat(text).utcoffset() != timedelta(0):
        raise ValueError("it is not in UTC")
    return text


Time = Annotated[str, AfterValidator(_check_time)]  # A date and time in UTC, ISO 8601


def require_known(kind: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise UserError(unknown(kind, name, known))


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class Frozen(BaseModel):
    """An immutable model that rejects unknown fields and numbers that are not finite.

    Fields at their default are not written, so that a new field changes no earlier identity. A tag
    with one possible value (`kind`) is always written.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_serializer(mode="wrap")
    def _without_defaults(self, write: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        written = write(self)
        for name, default in _defaults(type(self)).items():
            if getattr(self, name) == default:
                written.pop(name, None)
        return written


@cache
def _defaults(kind: type[BaseModel]) -> dict[str, Any]:
    return {
        name: field.get_default(call_default_factory=True)
        for name, field in kind.model_fields.items()
        if not field.is_required()
        and (get_origin(field.annotation) is not Literal or len(get_args(field.annotation)) > 1)
    }


class Identified(Frozen):
    @cached_property
    def text(self) -> str:
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    @cached_property
    def id(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    def model_copy(
        self: IdentifiedT, *, update: Mapping[str, Any] | None = None, deep: bool = False
    ) -> IdentifiedT:
        copied = super().model_copy(update=update, deep=deep)
        vars(copied).pop("text", None)
        vars(copied).pop("id", None)
        return copied


class Quartiles(Frozen):
    q1: Positive
    median: Positive
    q3: Positive

    def model_post_init(self, _: Any) -> None:
        if not self.q1 <= self.median <= self.q3:
            raise ValueError(f"quartiles {self.q1}, {self.median}, {self.q3} are not in order")

    @classmethod
    def of(cls, values: Iterable[float]) -> "Quartiles":
        q1, median, q3 = np.quantile([*values], (0.25, 0.5, 0.75)).tolist()
        return cls(q1=q1, median=median, q3=q3)

    @classmethod
    def of_ratio(cls, values: Iterable[float], others: Iterable[float]) -> "Quartiles":
        return cls.of(value / other for value, other in zip(values, others, strict=True))

    def __truediv__(self, other: "float | Quartiles") -> "Quartiles":
        # By a number, or the ratio of medians with the quartiles furthest from it.
        by = other if isinstance(other, Quartiles) else Quartiles.of([other])
        return Quartiles(q1=self.q1 / by.q3, median=self.median / by.median, q3=self.q3 / by.q1)
