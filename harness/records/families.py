"""The family of each variant of this project, from what is listed of it: nothing is imported."""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from zoo.registry import CUSTOM, FAMILIES

LISTED = Path(__file__).parents[1] / "cli" / "list.json"


def family_of(attention: str) -> str:
    """The family of a variant, of a composition that of the last variant; else `custom`."""
    names = re.findall(r"[^+*()\d][^+*()]*", attention)
    return _families().get(names[-1] if names else "", CUSTOM)


def colour_of(attention: str) -> str:
    """The colour of a variant in every figure: that of its family."""
    return FAMILIES[family_of(attention)]


@cache
def _families() -> Mapping[str, str]:
    listed = json.loads(LISTED.read_text("utf-8"))["variants"]
    return {variant["name"]: variant.get("family", CUSTOM) for variant in listed}
