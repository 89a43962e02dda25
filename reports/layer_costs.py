"""The costs of layers that a suite plans, from a frame of `harness cost`."""

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from harness.records.suites import CostPlan

OF_COSTS = [
    "row", "level", "pass", "length", "batching", "dim", "heads", "causal", "precision", "device",
    "machine", "threads", "status", "seconds", "ratio", "memory_ratio", "state_bytes",
    "computed_by",
]  # fmt: skip
"""The columns of costs that a matrix is made from."""


def of_plan(costs: pd.DataFrame, plan: "CostPlan") -> pd.DataFrame:
    """The costs of layers as the plan says, at any length, of the machine with most of them."""
    setting = {"level": "layer"} | plan.model_dump(include={"precision", "dim", "heads"})
    costs = costs.reindex(columns=[*costs] or OF_COSTS)
    found = costs[(costs[[*setting]] == pd.Series(setting)).all(axis=1)]
    found = found[found["batching"] == found["pass"].map(plan.batch)]
    machines = found.groupby(["device", "machine", "threads"]).ngroup()
    return found[machines == machines.mode().max()]


def measured(costs: pd.DataFrame, plan: "CostPlan") -> pd.DataFrame:
    """The costs of `of_plan` that were measured, at the lengths of the plan.

    Of several measurements of a row the one with a ratio to the fastest softmax is used, then the
    one of the form that is not causal, then the fastest: the column `computed_by` says what
    computed it.
    """
    found = of_plan(costs, plan)
    found = found[found["length"].isin(plan.lengths) & (found["status"] == "ok")]
    found = found.assign(unrelated=found["ratio"].isna())
    found = found.sort_values(["unrelated", "causal", "seconds"])
    return found.drop_duplicates(["row", "pass", "length"]).drop(columns="unrelated")


def by_row_of(costs: pd.DataFrame, plan: "CostPlan") -> pd.DataFrame:
    """The columns of costs of the matrix of a suite, by row; see `reports.suites.matrix`."""
    found, lengths = measured(costs, plan).set_index("row"), sorted(plan.lengths)
    train, decode = found[found["pass"] == "train"], found[found["pass"] == "decode"]
    values = {"time": "ratio", "memory": "memory_ratio"}
    parts = [
        train.pivot(columns="length", values=value).reindex(columns=lengths).add_prefix(f"{name}.")
        for name, value in values.items()
    ]
    token = decode.loc[decode["length"] == lengths[-1], ["seconds", "state_bytes"]]
    parts += [token.rename(columns={"seconds": "decode_seconds"})]
    computed_by = train.sort_values("length").groupby("row")["computed_by"].last()
    return pd.concat(parts, axis=1).join(computed_by, how="outer")
