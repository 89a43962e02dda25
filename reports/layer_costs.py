"""The costs of layers that a suite plans, and their growth with length; none is extrapolated."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from harness import recipes
from harness.catalogue import described
from harness.records.families import layer_counts
from harness.records.interval import UPPER
from harness.records.spec import by_option, label_of
from harness.records.suites import Suite

CAUSAL = "causal"

# The forms of a layer and of a question: a question is compared with costs of its form alone.
FORMS = (CAUSAL, "bidirectional")

PASSES = {
    "train": "training", "forward": "evaluation", "prefill": "prefill", "decode": "decoding",
}  # fmt: skip

PYTORCH = "PyTorch"  # The `computed_by` of a layer without a fused kernel

# The columns of an empty frame of costs.
OF_COSTS = [
    "row", "level", "pass", "length", "batching", "dim", "heads", "causal", "precision", "device",
    "machine", "threads", "status", "seconds", "ratio", "outdated", "computed_by", "commit",
]  # fmt: skip

ByLength = Mapping[int, float] | pd.Series
FITTED = 4  # The longest lengths that an exponent is fitted to: shorter ones have constant costs


def forms_of(suite: Suite, tasks: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    causal, of = {task["name"]: task["causal"] for task in tasks}, recipes.of_suite(suite)
    return {
        q.name: FORMS[0 if of[q.name].options.get("causal", causal.get(q.task)) else 1]
        for q in suite.questions
    }


def of_suite(costs: pd.DataFrame, suite: Suite) -> pd.DataFrame:
    # The costs of the plan, of the machine with most of them, with the options of the questions.
    plan, labels = suite.cost, _labels(suite)
    setting = {name: getattr(plan, name) for name in ("level", "precision", "dim", "heads")}
    costs = costs.reindex(columns=[*costs] or OF_COSTS)
    costs = costs[~costs["row"].isin(labels.values())].replace({"row": labels})
    found = costs[(costs[[*setting]] == pd.Series(setting)).all(axis=1)]
    found = found[found["batching"] == found["pass"].map(plan.batch)]
    machines = found.groupby(["device", "machine", "threads"]).ngroup()
    return found[machines == machines.mode().max()]


def _labels(suite: Suite) -> dict[str, str]:
    # The row of each label of a cost that has the options of the questions as well.
    listed = described()["variants"]
    defaults = {f"{variant['name']}.{option['name']}": option["default"]
                for variant in listed for option in variant["options"]}  # fmt: skip
    usual = by_option(recipes.shared_options(suite))
    usual = {path: value for path, value in usual.items() if defaults.get(path) != value}
    found = {}
    for row in suite.rows:
        names = layer_counts(row.attention)
        own = {path: value for path, value in usual.items() if path.partition(".")[0] in names}
        found[label_of(row.attention, {**own, **by_option(row.options)})] = row.label
    return {label: row for label, row in found.items() if label != row}


def measured(costs: pd.DataFrame, suite: Suite, form: str) -> pd.DataFrame:
    found = of_suite(costs, suite)
    found = found[found["length"].isin(suite.cost.lengths) & (found["status"] == "ok")]
    found = found[found["causal"].astype(bool) == (form == CAUSAL)]
    return preferred_first(found).drop_duplicates(["row", "pass", "length"])


def layer_weights(attention: str, depth: int) -> dict[str, int]:
    # How many layers of a model each variant of a composition has.
    layers = dict(layer_counts(attention))
    if len(layers) == 2 and "*" not in attention:
        layers[next(iter(layers))] = max(1, depth - 1)
    return layers


def with_compositions(
    found: pd.DataFrame, attentions: Mapping[str, str], depth: int
) -> pd.DataFrame:
    # A composition without costs of its own has the mean over its layers. `attentions` are by row.
    parts = [found]
    for row, attention in attentions.items():
        weights = layer_weights(attention, depth)
        layers = found[found["row"].isin(weights)]
        if row in {*found["row"]} or len(weights) < 2 or {*layers["row"]} != weights.keys():
            continue
        every = layers.groupby(["pass", "length"])["row"].transform("size") == len(weights)
        share = layers["row"].map(weights) / sum(weights.values())
        numbers = layers[every].select_dtypes("number").drop(columns="length")
        of_layers = numbers.mul(share[every], axis=0).groupby(
            [layers.loc[every, "pass"], layers.loc[every, "length"]]
        )  # fmt: skip
        parts.append(of_layers.sum(min_count=len(weights)).reset_index().assign(row=row))
    return pd.concat(parts) if len(parts) > 1 else found


def preferred_first(costs: pd.DataFrame) -> pd.DataFrame:
    # Seconds of two processes differ by more than ratios, whose parts are of one.
    ordered = costs.sort_values("seconds").sort_values("ratio", kind="stable")
    return ordered.sort_values("outdated", kind="stable")


class Exponent(NamedTuple):
    # The exponent b of `cost = a N^b` with its 95 % interval.
    value: float
    low: float
    high: float

    @property
    def text(self) -> str:
        # Of three lengths the interval is often wider than any claim.
        interval = f" [{self.low:z.2f}, {self.high:z.2f}]"
        return f"{self.value:z.2f}{interval * (self.high - self.low <= 1)}"


class Crossover(NamedTuple):
    # The length from which a ratio stays below 1, as an interval, and the measured lengths. An end
    # of 0 is below the shortest length, an infinite one above the longest.
    low: float
    high: float
    shortest: int
    longest: int

    @property
    def text(self) -> str:
        if (self.low, self.high) == (0, math.inf):
            return "undecided"
        if self.high == math.inf:
            is_known = self.low < self.longest
            return f"above {self.low:,.0f}" if is_known else f"not up to {self.longest:,}"
        if self.low == 0:
            return f"below {max(self.high, self.shortest):,.0f}"
        # Memory has no interval.
        return f"{self.low:,.0f}" + (f" to {self.high:,.0f}" if self.low < self.high else "")


def _points(values: ByLength) -> list[tuple[float, float]]:
    return sorted((float(length), float(value)) for length, value in dict(values).items())


def exponent(costs: ByLength) -> Exponent | None:
    # The interval is Student's for the slope of a least-squares line, whose residuals are the
    # deviation from a power law rather than noise alone. None with fewer than three lengths.
    points = _points(costs)[-FITTED:]
    if len(points) < 3:
        return None
    lengths, values = np.log(points).T
    (slope, _), covariance = np.polyfit(lengths, values, 1, cov=True)
    half = stdtrit(len(points) - 2, UPPER) * covariance[0, 0] ** 0.5
    return Exponent(float(slope), float(slope - half), float(slope + half))


def crossover(low: ByLength, high: ByLength) -> Crossover | None:
    # `low` and `high` are the ends of the interval of the ratio, by length.
    lengths = sorted(low.keys())
    if not lengths:
        return None
    # The lower end of the ratio's interval crosses first.
    return Crossover(_crossing(low), _crossing(high), lengths[0], lengths[-1])


def _crossing(ratios: ByLength) -> float:
    # 0 if all are below 1, infinite if the last is not.
    points = _points(ratios)
    above = [position for position, (_, ratio) in enumerate(points) if ratio >= 1]
    if not above:
        return 0.0
    if above[-1] == len(points) - 1:
        return math.inf
    # Linear in logarithms between two lengths.
    (before, start), (after, end) = np.log(points[above[-1] : above[-1] + 2]).tolist()
    return math.exp(before + start / (start - end) * (after - before))
