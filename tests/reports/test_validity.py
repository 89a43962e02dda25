"""Published orderings, and what results say of them."""

import math

import pandas as pd
import pytest

from harness.records.suites import find
from reports import papers, validity
from reports.statistics import COLUMNS
from reports.validity import compared, correlations, orderings, published
from tests.conftest import ROOT
from zoo.composition import Composition


def line(row, question, mean, half=1.0, better="higher", **more):
    return {"row": row, "question": question, "mean": mean, "low": mean - half,
            "high": mean + half, "better": better, "seeds": 3, "part": "", "solved": False,
            "rising": False, "trained": True, **more}  # fmt: skip


PROBE = ["row", "question", "probe", "trained", "mean", "low", "high", "better", "seeds"]

NONE = pd.DataFrame(columns=[*PROBE, "part", "solved", "rising"])


def found_in(*lines, probes=NONE):
    pairs = pd.DataFrame(columns=[*COLUMNS, "probe"])
    return orderings(pd.DataFrame(lines), probes, pairs).set_index(["above", "below"])


@pytest.mark.parametrize(("first", "second", "verdict"), [
    ({}, {"part": "trial, 1 seed", "seeds": 1}, "with one seed"),
    ({"part": "2 of 3 seeds", "seeds": 2}, {}, "reproduced"), ({}, {"seeds": 1}, "with one seed"),
    ({"seeds": 1}, {}, "with one seed"), ({"seeds": 2}, {"seeds": 2}, "reproduced"),
    ({"solved": True}, {"solved": True}, "not reproduced: both solve it"),
    ({"solved": True}, {"solved": False}, "reproduced"),
])  # fmt: skip
@pytest.mark.parametrize("probe", [False, True])
def test_an_order_needs_two_seeds_and_a_variant_below_the_ceiling(first, second, verdict, probe):
    names = ("taylor", "linear") if probe else ("delta", "gated-linear")
    question = "recall" if probe else "fuzzy"
    results = zip(names, (55.0, 39.0), (first, second), strict=True)
    lines = [line(row, question, mean, **more) for row, mean, more in results]
    probes = pd.DataFrame(lines).assign(probe="64 pairs in 256").reindex(columns=PROBE)
    assert found_in(*lines, probes=probes).loc[names, "verdict"] == verdict


@pytest.mark.parametrize(("first", "second", "better", "verdict", "ends"), [
    (55.0, 39.0, "higher", "reproduced", (14, 18)),
    (39.0, 55.0, "higher", "contradicted", (-18, -14)),
    (40.0, 39.0, "higher", "undecided", (-1, 3)), (3.0, 6.0, "lower", "reproduced", (1, 5)),
    (6.0, 3.0, "lower", "contradicted", (-5, -1)),
    (3.0, math.nan, "lower", "not run", (math.nan, math.nan)),
])  # fmt: skip
def test_an_order_is_reproduced_where_the_intervals_are_apart(first, second, better, verdict, ends):
    found = found_in(line("delta", "fuzzy", first, better=better),
                     line("gated-linear", "fuzzy", second, better=better, rising=True))  # fmt: skip
    assert {*found["question"]} == {"fuzzy"}
    one = found.loc[("delta", "gated-linear")]
    assert (one["verdict"], one["rising"]) == (verdict, ["gated-linear"] * (verdict != "not run"))
    assert (one["low"], one["high"]) == pytest.approx(ends, nan_ok=True)
    assert found.loc[("mesa", "delta"), "verdict"] == "not run"


def test_every_published_ordering_and_table_is_of_variants_and_has_its_sources():
    assert len(published()) >= 14 and all(of["published"] and of["sources"] for of in published())
    pairs = [(of["above"], of["below"], of["question"], of.get("probe")) for of in published()]
    assert len({*pairs}) == len(pairs)
    tables = correlations(NONE, NONE)
    assert len(tables) >= 10 and (tables["rows"] == 0).all() and tables["tau"].isna().all()
    rows = {row for task in tables["task"] for row in papers.published(task=task)["attention"]}
    for row in rows.union(*(pair[:2] for pair in pairs)):
        Composition.parse(row.partition("[")[0])


@pytest.mark.parametrize(("order", "tau"), [
    ([0, 1, 2, 3, 4, 5], 1.0), ([5, 4, 3, 2, 1, 0], -1.0), ([1, 0, 2, 3, 4, 5], 13 / 15),
    ([0, 1, 2, 3, 4], math.nan),
])  # fmt: skip
def test_kendalls_tau_is_of_the_better_rows_first_and_needs_six_of_them(order, tau):
    task = "MAD fuzzy recall"
    (reference, table), *_ = [
        each for each in papers.published(task=task).groupby("reference", sort=False)
        if each[1]["value"].nunique() >= 6
    ]  # fmt: skip
    rows = table.drop_duplicates("value").sort_values("value")["attention"].head(6)
    unknown = [("mine", 9.0), ("retention-of-mine", math.nan)]
    means = [*zip(rows, map(float, order), strict=False), *unknown]
    found = correlations(pd.DataFrame(line(row, "fuzzy", mean) for row, mean in means), NONE)
    found = found[found["reference"] == reference].iloc[0]
    assert (found["rows"], found["tau"]) == (len(order), pytest.approx(tau, nan_ok=True))
    assert math.isnan(tau) or found["low"] <= found["tau"] <= found["high"]


def test_results_of_another_suite_are_not_tested_and_every_contradiction_is_explained(suite_frames):
    found, tables = compared(suite_frames.tables())
    assert len(found) == len(published()) and {*found["verdict"]} == {"not run"}
    assert {*tables["rows"]} == {0}
    # They are of no older suite than the published one.
    name, _, version = validity.suite().partition("@")
    assert int(version) >= find(name).version
    assert "no explanation yet" not in (ROOT / "docs" / "validity.md").read_text("utf-8")
