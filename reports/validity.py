"""Published orderings as tests of a suite: whether its results have the same order."""

import math
import tomllib
from collections.abc import Hashable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

FILE = Path(__file__).parent / "published" / "orderings.toml"

REPRODUCED, UNDECIDED, CONTRADICTED = "reproduced", "undecided", "contradicted"

NOT_RUN = "not run"


@cache
def published() -> tuple[Mapping[str, str], ...]:
    """The published orderings; see the file."""
    return tuple(tomllib.loads(FILE.read_text("utf-8"))["orderings"])


def orderings(answers: pd.DataFrame, probes: pd.DataFrame) -> pd.DataFrame:
    """Each published ordering of a question of these results, with what the results have.

    Args:
        answers: of `reports.suite_results.SuiteResults`.
        probes: the same columns for further splits, by `probe`: `row`, `question`, `mean`, `low`,
            `high`, `better`.

    Returns:
        A line for each ordering: its fields; `first` and `second`, the means of the two rows;
        `difference`, positive if the order is the published one, with the sum of both intervals as
        `low` and `high`; `verdict`.
    """
    asked = {*answers["question"]}
    found = [
        {"probe": "", **ordering, **_compared(ordering, probes if "probe" in ordering else answers)}
        for ordering in published()
        if ordering["question"] in asked
    ]
    return pd.DataFrame(found)


def _compared(ordering: Mapping[str, str], results: pd.DataFrame) -> dict[str, Any]:
    found = results[results["question"] == ordering["question"]]
    if "probe" in ordering:
        found = found[found["probe"] == ordering["probe"]]
    lines = found.drop_duplicates("row").set_index("row").to_dict("index")
    first, second = (lines.get(ordering[name], {}) for name in ("above", "below"))
    means = [line.get("mean", math.nan) for line in (first, second)]
    if any(math.isnan(mean) for mean in means):
        nothing = dict.fromkeys(("first", "second", "difference", "low", "high"), math.nan)
        return {**nothing, "verdict": NOT_RUN}
    low, high = _difference(first, second)
    verdict = REPRODUCED if low > 0 else CONTRADICTED if high < 0 else UNDECIDED
    sign = 1 if first["better"] == "higher" else -1
    return {
        "first": means[0], "second": means[1], "difference": sign * (means[0] - means[1]),
        "low": low, "high": high, "verdict": verdict,
    }  # fmt: skip


def _difference(
    first: Mapping[Hashable, Any], second: Mapping[Hashable, Any]
) -> tuple[float, float]:
    """The least and the largest difference between two intervals, positive if the first is better.

    Both intervals cover 95 %, so this one covers at least 95 %.
    """
    ends = first["low"] - second["high"], first["high"] - second["low"]
    return ends if first["better"] == "higher" else (-ends[1], -ends[0])
