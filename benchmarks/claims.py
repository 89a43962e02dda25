"""Claims of performance: ratios of two measurements on one device, and the records of them.

The claims are the table `claims.csv`. `cpu` and `cuda` are the bounds, `-` where a ratio is for
comparison only, empty where it is not measured. Where `quantity` is `time` or `memory`, the ratio
is between the calls or costs `of` and `over`; other ratios are computed by the function of
the `section`. A record is one line, which a claim that is measured again replaces.
"""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import model_validator

from harness.records.fields import Frozen, Positive, Quartiles, Seconds
from harness.records.files import Text, line_of, read_lines, write_atomic
from harness.records.record import Environment
from zoo.registry import UserError

RESULTS = Path("results")
"""The store of the records, in its file `FILE`."""

FILE = "benchmarks.jsonl"

Kind = Literal["cpu", "cuda"]
KINDS: tuple[Kind, ...] = ("cpu", "cuda")


class Claim(NamedTuple):
    """A line of the table: what is divided by what, and the bound of the median by kind of device.

    `limit` is what the ratio cannot fall below, and why.
    """

    name: str
    what: str
    bounds: Mapping[Kind, float | None]
    limit: str
    quantity: str = ""
    of: str = ""
    over: str = ""


class ClaimRecord(Frozen):
    """A claim with what was measured.

    Attributes:
        bound: of the claim, as are `name`, `what` and `limit`; None for a comparison.
        setting: shapes, precision and rounds, in words.
        ratio: its quartiles over rounds; None where it cannot be measured, for a `reason`.
        met: whether the median is at most the bound; None without a bound or a ratio.
        figures: what the ratios were computed from, by name with its unit.
        taken: UTC, ISO 8601; the measurement took `seconds`.
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


def _read_claims() -> dict[str, list[Claim]]:
    """The claims of each section, in the order of the table."""
    sections: dict[str, list[Claim]] = {}
    with Path(__file__).with_name("claims.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            bounds: dict[Kind, float | None] = {
                kind: None if row[kind] == "-" else float(row[kind]) for kind in KINDS if row[kind]
            }
            fields = {name: row[name] for name in Claim._fields if name != "bounds"}
            sections.setdefault(row["section"], []).append(Claim(**fields, bounds=bounds))
    return sections


CLAIMS = _read_claims()


def is_met(ratio: Quartiles | None, bound: float | None) -> bool | None:
    """Return whether the median is at most the bound; None without one of them."""
    return None if ratio is None or bound is None else ratio.median <= bound


def write(record: ClaimRecord, folder: Path, kind: Kind) -> Path:
    """Write a record about a kind of device to the file of `folder`; the path of that."""
    lines = {line.name: line_of(line.kind, line.name, line.text) for line in _lines(folder)}
    name = f"{record.name}-{kind}"
    lines[name] = line_of("claim", name, record.model_dump_json())
    return write_atomic(folder / FILE, "".join(line for _, line in sorted(lines.items())).encode())


def read(folder: Path, kind: Kind) -> list[ClaimRecord]:
    """The records in `folder`, in order of name.

    Raises:
        ValidationError: a line is not a record.
    """
    found = []
    for line in _lines(folder):
        if line.problem:
            raise UserError(
                f"line {line.line} of {line.file} is not a record ({line.problem}); measure it "
                "again"
            )
        if line.name.endswith(f"-{kind}"):
            found.append(ClaimRecord.model_validate_json(line.text))
    return found


def _lines(folder: Path) -> list[Text]:
    return [line for line in read_lines(folder) if line.file == folder / FILE]
