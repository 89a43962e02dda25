"""A claim of performance: a ratio of two measurements of one run, its bound, and how it was taken.

The claims are the table `claims.csv`: `cpu` and `cuda` are the bounds, `-` where a ratio is for
comparison only, empty where it is not measured. A function with the decorator `section` measures
those of a section. Each finding is one JSON file, so that a claim that is measured again replaces
its record alone.
"""

import csv
import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeVar

import torch
from pydantic import Field, model_validator

from harness.environment import describe
from harness.records.fields import Fraction, Frozen, Positive, Precision, Quartiles, Seconds
from harness.records.files import write_atomic
from harness.records.record import Environment
from harness.timing import Call, sample, wall_clock

RESULTS = Path("results/benchmarks")
BEFORE = RESULTS / "before"
"""Profiles of the training step before it was optimised."""

Kind = Literal["cpu", "cuda"]


@dataclass(frozen=True)
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
    """Where and at what size to measure: `tiny` is to test the code, such ratios mean nothing."""

    device: torch.device
    tiny: bool = False

    @property
    def kind(self) -> Kind:
        """The kind of device."""
        return "cpu" if self.device.type == "cpu" else "cuda"

    def size(self, full: int, tiny: int) -> int:
        """`full`, or `tiny` where sizes are the smallest."""
        return tiny if self.tiny else full


@dataclass(frozen=True)
class Finding:
    """What was measured for one claim.

    Attributes:
        name: of the claim.
        setting: shapes, precision and rounds, in words.
        ratios: one for each round; empty where it cannot be measured.
        figures: what the ratios were computed from, by name with its unit.
        reason: why it cannot be measured here; empty where it was.
    """

    name: str
    setting: str
    ratios: Sequence[float] = ()
    figures: Mapping[str, Quartiles] = field(default_factory=dict)
    reason: str = ""


class ClaimRecord(Frozen):
    """A claim with what was measured.

    Attributes:
        schema_version: of this class.
        name: of the claim, as are `what`, `bound` and `limit`; the bound is None for a comparison.
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
    precision: Precision
    milliseconds: Quartiles
    shares: dict[str, Fraction]
    operations: Annotated[dict[str, Fraction], Field(min_length=1)]
    taken: str
    environment: Environment


RecordT = TypeVar("RecordT", ClaimRecord, ProfileRecord)


Measure = Callable[[Setting], Iterator["Finding | ProfileRecord"]]
"""Yields findings as they are measured, and profiles."""


def _read_claims() -> dict[str, list[Claim]]:
    """The claims of each section, in the order of the table."""
    sections: dict[str, list[Claim]] = {}
    with Path(__file__).with_name("claims.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            kinds: tuple[Kind, ...] = ("cpu", "cuda")
            bounds = {k: None if row[k] == "-" else float(row[k]) for k in kinds if row[k]}
            claim = Claim(row["name"], row["what"], bounds, row["limit"])
            sections.setdefault(row["section"], []).append(claim)
    return sections


CLAIMS = _read_claims()


class Section(NamedTuple):
    """Claims that are measured together.

    Attributes:
        name: the argument of the command, and the heading of the page.
        text: its paragraphs below the heading, the docstring of `measure`.
        claims: what is measured.
        measure: measures.
    """

    name: str
    text: str
    claims: Sequence[Claim]
    measure: Measure

    def records(self, setting: Setting, out: Path) -> list[ClaimRecord]:
        """Measure the claims that are made for the device, and write their records."""
        claims = {one.name: one for one in self.claims if setting.kind in one.bounds}
        records, start = [], time.perf_counter()
        for found in self.measure(setting) if claims else ():
            if isinstance(found, ProfileRecord):
                write(found, out, setting.kind)
            elif found.name in claims:
                now = time.perf_counter()
                record = record_of(claims[found.name], found, setting.kind, now - start)
                write(record, out, setting.kind)
                records.append(record)
                start = now
        return records


REGISTERED: dict[str, Section] = {}


def section(name: str) -> Callable[[Measure], Measure]:
    """A decorator: the function measures the claims of the section `name`."""

    def register(measure: Measure) -> Measure:
        REGISTERED[name] = Section(name, inspect.getdoc(measure) or "", CLAIMS[name], measure)
        return measure

    return register


def variants_of(name: str, prefix: str) -> list[str]:
    """What the claims of a section are about: their names without `prefix`."""
    return [c.name.removeprefix(prefix) for c in CLAIMS[name] if c.name.startswith(prefix)]


class Times:
    """Seconds of each of several implementations, timed alternately by the wall clock."""

    def __init__(self, calls: Mapping[str, Call], setting: Setting, rounds: int) -> None:
        """Time the calls in `rounds` rounds."""
        self.rounds = setting.size(rounds, 3)
        clock = wall_clock(setting.device)
        self.seconds = dict(
            zip(calls, sample([*calls.values()], clock, rounds=self.rounds), strict=True)
        )

    def figures(self, *names: str) -> dict[str, Quartiles]:
        """Milliseconds of implementations."""
        return {f"{n} (ms)": Quartiles.of(1000 * t for t in self.seconds[n]) for n in names}

    def finding(self, name: str, which: str, other: str, setting: str) -> Finding:
        """The finding of the claim `name`: the time of `which` over that of `other`, by round."""
        pairs = zip(self.seconds[which], self.seconds[other], strict=True)
        how = f"{setting}; {self.rounds} rounds, alternately"
        return Finding(name, how, [a / b for a, b in pairs], self.figures(which, other))


def is_met(ratio: Quartiles | None, bound: float | None) -> bool | None:
    """Whether the median is at most the bound; None without one of them."""
    return None if ratio is None or bound is None else ratio.median <= bound


def record_of(claim: Claim, finding: Finding, kind: Kind, seconds: float) -> ClaimRecord:
    """The record of a claim that was measured now."""
    ratio, bound = Quartiles.of(finding.ratios) if finding.ratios else None, claim.bounds[kind]
    return ClaimRecord(
        name=claim.name, what=claim.what, bound=bound, limit=claim.limit,
        setting=finding.setting, ratio=ratio, met=is_met(ratio, bound), reason=finding.reason,
        figures=dict(finding.figures), taken=now(), seconds=round(seconds, 3),
        environment=describe(kind),
    )  # fmt: skip


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
    paths = [
        path for path in sorted(folder.glob(f"*-{kind}.json"))
        if path.name.startswith("profile-") == (model is ProfileRecord)
    ]  # fmt: skip
    return [model.model_validate_json(path.read_text("utf-8")) for path in paths]


def unmeasurable(names: Iterable[str], setting: str, reason: str) -> list[Finding]:
    """Findings without ratios."""
    return [Finding(name, setting, reason=reason) for name in names]
