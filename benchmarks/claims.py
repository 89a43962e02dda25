"""Claims of performance: each is a ratio of two measurements on one device, with a bound.

The columns of `claims.csv` are the `section`, `name` and text (`what`) of a claim; its bound by
kind of device, `cpu` and `cuda`, which is `-` for a comparison only and empty where nothing is
measured; its `limit`, what the ratio cannot fall below, and why; and its `quantity`, `time` or
`memory`, of `of` divided by `over`. Other ratios are computed by the function of the section.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd

from harness.records.fields import Device, Quartiles

CLAIMS = pd.read_csv(Path(__file__).with_name("claims.csv"), dtype=str, keep_default_na=False)


def of_section(section: str, kind: Device) -> list[Any]:
    """The claims that a section makes for a kind of device: named tuples of its bound and texts."""
    claims = CLAIMS[(CLAIMS["section"] == section) & (CLAIMS[kind] != "")]
    bounds = [None if text == "-" else float(text) for text in claims[kind]]
    return [*claims.assign(bound=pd.Series(bounds, claims.index, object)).itertuples()]


class Setup(NamedTuple):
    """The claims of a section, the kind of device, and the store of costs.

    If `tiny`, sizes are the smallest, to test the code: such ratios mean nothing.
    """

    claims: list[Any]
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
