"""The family of each variant of this project, from `list.json`: no variant is imported."""

import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from zoo.registry import CUSTOM, FAMILIES, UserError, layers_in

LISTED = Path(__file__).parents[1] / "list.json"
GROWTHS = ("O(N)", "O(N log N)", "O(N²)")


def family_of(attention: str) -> str:
    try:
        return _listed().get(layers_in(attention)[-1], {}).get("family", CUSTOM)
    except UserError:  # records may hold any text
        return CUSTOM


def is_control(attention: str) -> bool:
    return family_of(attention) == "no attention"


def layer_counts(attention: str) -> Mapping[str, int]:
    return Counter(layers_in(attention))


def colour_of(attention: str) -> str:
    return FAMILIES[family_of(attention)]


def order_of(attention: str) -> int:
    return [*FAMILIES].index(family_of(attention))


def growth_of(attention: str, *, linear: bool) -> str:
    """How the cost of a layer grows with N tokens, as its variant claims."""
    if linear:
        return GROWTHS[0]
    claims = (_listed().get(name, {}).get("cost", GROWTHS[-1]) for name in layers_in(attention))
    return max(claims, key=GROWTHS.index)


@cache
def _listed() -> Mapping[str, Mapping[str, Any]]:
    return {of["name"]: of for of in json.loads(LISTED.read_text("utf-8"))["variants"]}
