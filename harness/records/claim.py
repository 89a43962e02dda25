"""A claim of performance with what was measured, and the file of all of them."""

from pathlib import Path
from typing import Literal

from harness.records.fields import Device, Frozen, Positive, Quartiles, Seconds
from harness.records.files import file_lines, line_of, write_all
from harness.records.published import Line, merged
from harness.records.record import Environment
from harness.records.store import Broken, parse
from zoo.registry import UserError

FILE = "benchmarks.jsonl"


class ClaimRecord(Frozen):
    """A claim with what was measured.

    Attributes:
        bound: as `name`, `what` and `limit` of the claim; None for a comparison.
        setting: shapes, precision and rounds, in words.
        ratio: its quartiles over rounds; None where it cannot be measured, for a `reason`.
        figures: what the ratios were computed from, by name with its unit.
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

    def _check(self) -> None:
        if self.met != is_met(self.ratio, self.bound):
            raise ValueError("met is not what ratio and bound show")
        if (self.ratio is None) != bool(self.reason):
            raise ValueError("a record has a reason if and only if it has no ratio")


def is_met(ratio: Quartiles | None, bound: float | None) -> bool | None:
    """Return whether the median is at most the bound; None without one of them."""
    return None if ratio is None or bound is None else ratio.median <= bound


def write(record: ClaimRecord, store: Path, kind: Device) -> Path:
    """Write a record about a kind of device as a line of `FILE`, in place of the earlier one.

    Raise `UserError` where another line of the file is no record.
    """
    name = f"{record.name}-{kind}"
    text = line_of("claim", name, record.model_dump_json())
    (path,) = write_all(merged([Line(FILE, "claim", name, text, store)], store))
    return path


def read(store: Path, kind: Device) -> dict[str, ClaimRecord]:
    """The records of a store about a kind of device by the name of their claim, in order."""
    found = {}
    for line in file_lines(store / FILE) if (store / FILE).exists() else ():
        if isinstance(record := parse(line, ClaimRecord), Broken):
            raise UserError(
                f"{record.path} is damaged ({record.reason}); delete the line, and measure it again"
            )
        if line.name.endswith(f"-{kind}"):
            found[record.name] = record
    return found
