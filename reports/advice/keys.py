"""The plain values that the table and the rules of the advisor share, and their texts."""

import json
import math
import re
from pathlib import Path
from typing import Any

from reports.tables.values import NOTHING, number

Values = dict[str, Any]
"""A mapping of plain values, as JSON holds it."""

RULES: Values = json.loads(Path(__file__).with_name("rules.json").read_text("utf-8"))

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def key_of(operation: str, causal: bool) -> str:
    """The costs of one pass, as a key: `train`, `train causal`."""
    return f"{operation} causal" if causal else operation


def label_of(key: str) -> str:
    """A key for a reader: `training, causal`."""
    operation, _, causal = key.partition(" ")
    name = RULES["passes"].get(operation, operation)
    return f"{name}, causal" if causal and operation not in RULES["causal_passes"] else name


def bytes_text(count: float | None) -> str:
    """Bytes with three significant digits: `8.00 KiB`."""
    if count is None:
        return NOTHING
    power = min(int(math.log(max(count, 1), 1024)), len(UNITS) - 1)
    return f"{number(count / 1024**power)} {UNITS[power]}"


def bytes_in(text: str) -> int:
    """Read an amount of memory, `2GiB` or `512 MiB`; raise `ValueError` if it is not one."""
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?\s*", text, re.IGNORECASE)
    if not parts:
        raise ValueError(text)
    return round(float(parts[1]) * 1024 ** "BKMGT".index(parts[2].upper() or "B"))
