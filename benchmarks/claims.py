"""Claims of performance: each is a ratio of two measurements on one device, with a bound."""

import csv
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from harness.records.fields import Device, Quartiles


class Claim(NamedTuple):
    """A line of the table `claims.csv`.

    Attributes:
        cpu, cuda: the bound of the median; `-` for a comparison only, empty if not measured.
        quantity: `time` or `memory` of `of`, divided by that of `over`; else empty: the function of
            the section computes the ratio.
        limit: what the ratio cannot fall below, and why.
    """

    section: str
    name: str
    cpu: str
    cuda: str
    quantity: str
    of: str
    over: str
    what: str
    limit: str

    def bound(self, kind: Device) -> float | None:
        """The bound on a kind of device; None for a comparison."""
        text = self.cpu if kind == "cpu" else self.cuda
        return None if text == "-" else float(text)


class Setup(NamedTuple):
    """The claims of a section, the kind of device, and the store of costs.

    If `tiny`, sizes are the smallest, to test the code: such ratios mean nothing.
    """

    claims: list[Claim]
    kind: Device
    out: Path
    tiny: bool = False

    def size(self, full: int, tiny: int) -> int:
        """`full`, or `tiny` where sizes are the smallest."""
        return tiny if self.tiny else full


class Result(NamedTuple):
    """The ratio of a claim; or a `reason` why claims whose names match `name` have none."""

    name: str
    setting: str
    ratio: Quartiles | None = None
    figures: Mapping[str, Quartiles] = MappingProxyType({})
    reason: str = ""


def of_section(section: str, kind: Device) -> list[Claim]:
    """The claims that a section makes for a kind of device, in the order of the table."""
    return [c for c in CLAIMS if c.section == section and (c.cpu if kind == "cpu" else c.cuda)]


with Path(__file__).with_name("claims.csv").open(encoding="utf-8", newline="") as _file:
    CLAIMS = [Claim(**row) for row in csv.DictReader(_file)]
