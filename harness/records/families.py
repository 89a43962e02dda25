"""The family of each variant of this project, from `list.json`: no variant is imported."""

import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from zoo.registry import CUSTOM, FAMILIES, UserError, layers_in

LISTED = Path(__file__).parents[1] / "list.json"


def family_of(attention: str) -> str:
    try:
        return _families().get(layers_in(attention)[-1], CUSTOM)
    except UserError:  # records may hold any text
        return CUSTOM


def layer_counts(attention: str) -> Mapping[str, int]:
    return Counter(layers_in(attention))


def colour_of(attention: str) -> str:
    return FAMILIES[family_of(attention)]


def order_of(attention: str) -> int:
    return [*FAMILIES].index(family_of(attention))


@cache
def _families() -> Mapping[str, str]:
    listed = json.loads(LISTED.read_text("utf-8"))["variants"]
    return {variant["name"]: variant.get("family", CUSTOM) for variant in listed}
