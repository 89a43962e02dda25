"""A claim of performance: a ratio of two measurements of one run, its bound, and how it was taken.

Each benchmark is a module with `CLAIMS` and `measure(setting)`, which yields findings as they are
measured. Each finding is one JSON file, so that a claim that is measured again replaces its own
record alone.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import torch
from pydantic import Field, model_validator

from harness.environment import describe
from harness.measure import quartiles
from harness.records.fields import Fraction, Positive, Quartiles, Seconds
from harness.records.files import write_atomic
from harness.records.record import Environment
from harness.records.spec import Frozen

RESULTS = Path("results/benchmarks")
BEFORE = RESULTS / "before"
"""Profiles of the training step before it was optimised."""

Kind = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A ratio that is measured, and the most that it may be.

    Attributes:
        name: of its record.
        what: what is divided by what.
        bounds: the largest median that satisfies the claim, by kind of device; None where the ratio
            is for comparison only. It is not measured on other devices.
        limit: what the ratio cannot fall below, and why.
    """

    name: str
    what: str
    bounds: Mapping[Kind, float | None]
    limit: str


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where and at what size to measure.

    Attributes:
        device: the device.
        tiny: the smallest sizes, to test the code: such ratios mean nothing.
    """

    device: torch.device
    tiny: bool = False

    @property
    def kind(self) -> Kind:
        """The kind of device."""
        return "cpu" if self.device.type == "cpu" else "cuda"

    def size(self, full: int, tiny: int) -> int:
        """`full`, or `tiny` where sizes are the smallest."""
        return tiny if self.tiny else full


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was measured for one claim.

    Attributes:
        name: of the claim.
        setting: shapes, precision and rounds, in words.
        ratios: one for each round; empty where it cannot be measured.
        reason: why it cannot be measured here; empty where it was.
        figures: what the ratios were computed from, by name with its unit.
    """

    name: str
    setting: str
    ratios: Sequence[float] = ()
    reason: str = ""
    figures: Mapping[str, Quartiles] = field(default_factory=dict)


class ClaimRecord(Frozen):
    """A claim with what was measured.

    Attributes:
        schema_version: of this class.
        name: of the claim, as are `what`, `bound` and `limit`.
        what: what is divided by what.
        bound: the largest median that satisfies the claim; None for a comparison.
        limit: what the ratio cannot fall below, and why.
        setting: how it was taken.
        ratio: its quartiles over rounds; None where it cannot be measured.
        met: whether the median is at most the bound; None without a bound or a ratio.
        reason: why there is no ratio.
        figures: what the ratios were computed from.
        taken: UTC, ISO 8601.
        seconds: that the measurement took.
        environment: that of the measurement.
    """

    schema_version: Literal[1] = 1
    name: str
    what: str
    bound: Positive | None
    limit: str
    setting: str
    ratio: Quartiles | None
    met: bool | None
    reason: str
    figures: dict[str, Quartiles]
    taken: str
    seconds: Seconds
    environment: Environment

    @model_validator(mode="after")
    def _agree(self) -> "ClaimRecord":
        if self.met != is_met(self.ratio, self.bound):
            raise ValueError("met is not what ratio and bound show")
        if (self.ratio is None) != bool(self.reason):
            raise ValueError("a record has a reason if and only if it has no ratio")
        return self


class ProfileRecord(Frozen):
    """Where the time of a training step goes.

    Attributes:
        schema_version: of this class.
        name: of the file.
        workload: task and budget.
        attention: the variant.
        precision: of the matrix products.
        milliseconds: of a step, without the profiler.
        shares: fraction of the profiled time by group of operations; their sum is 1.
        operations: fraction of the profiled time of the operations that take most.
        taken: UTC, ISO 8601.
        environment: that of the measurement.
    """

    schema_version: Literal[1] = 1
    name: str
    workload: str
    attention: str
    precision: Literal["bf16", "fp32"]
    milliseconds: Quartiles
    shares: dict[str, Fraction]
    operations: Annotated[dict[str, Fraction], Field(min_length=1)]
    taken: str
    environment: Environment


RecordT = TypeVar("RecordT", ClaimRecord, ProfileRecord)


def is_met(ratio: Quartiles | None, bound: float | None) -> bool | None:
    """Whether the median is at most the bound; None without one of them."""
    return None if ratio is None or bound is None else ratio.median <= bound


def record_of(claim: Claim, finding: Finding, kind: Kind, seconds: float) -> ClaimRecord:
    """The record of a claim that was measured now."""
    ratio = quartiles(finding.ratios) if finding.ratios else None
    return ClaimRecord(
        name=claim.name,
        what=claim.what,
        bound=claim.bounds[kind],
        limit=claim.limit,
        setting=finding.setting,
        ratio=ratio,
        met=is_met(ratio, claim.bounds[kind]),
        reason=finding.reason,
        figures=dict(finding.figures),
        taken=now(),
        seconds=round(seconds, 3),
        environment=describe(kind),
    )


def now() -> str:
    """UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write(record: ClaimRecord | ProfileRecord, folder: Path, kind: Kind) -> Path:
    """Write a record to the file of its name and kind of device."""
    text = record.model_dump_json(indent=1) + "\n"
    return write_atomic(folder / f"{record.name}-{kind}.json", text.encode())


def read(folder: Path, kind: Kind, model: type[RecordT]) -> list[RecordT]:
    """The records of a class in `folder`, in order of name.

    Raises:
        ValidationError: a file is no such record.
    """
    is_profile = model is ProfileRecord
    paths = sorted(folder.glob(f"*-{kind}.json"))
    paths = [path for path in paths if path.name.startswith("profile-") == is_profile]
    return [model.model_validate_json(path.read_text("utf-8")) for path in paths]


class Stopwatch:
    """Seconds since the last call."""

    def __init__(self) -> None:
        """Start."""
        self.start = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap."""
        last, self.start = self.start, time.perf_counter()
        return self.start - last


def same(name: str, setting: str, ratio: float, figures: Mapping[str, float]) -> Finding:
    """The finding of a quantity that every round would repeat, such as peak memory."""
    exact = {key: Quartiles(q1=value, median=value, q3=value) for key, value in figures.items()}
    return Finding(name=name, setting=setting, ratios=[ratio], figures=exact)


def unmeasurable(names: Iterable[str], setting: str, reason: str) -> Iterable[Finding]:
    """Findings without ratios."""
    return [Finding(name=name, setting=setting, reason=reason) for name in names]
