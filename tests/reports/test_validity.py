"""Published orderings, and what results say of them."""

import math

import pandas as pd
import pytest

from reports.validity import orderings, published
from zoo.composition import Composition


def line(row, question, mean, half=1.0, better="higher", **more):
    return {"row": row, "question": question, "mean": mean, "low": mean - half,
            "high": mean + half, "better": better, **more}  # fmt: skip


NONE = pd.DataFrame(columns=["row", "question", "probe", "mean", "low", "high", "better"])


@pytest.mark.parametrize(
    ("first", "second", "better", "verdict", "ends"),
    [
        (55.0, 39.0, "higher", "reproduced", (14, 18)),
        (39.0, 55.0, "higher", "contradicted", (-18, -14)),
        (40.0, 39.0, "higher", "undecided", (-1, 3)),
        (3.0, 6.0, "lower", "reproduced", (1, 5)),
        (6.0, 3.0, "lower", "contradicted", (-5, -1)),
        (3.0, math.nan, "lower", "not run", (math.nan, math.nan)),
    ],
)
def test_an_order_is_reproduced_where_the_intervals_are_apart(first, second, better, verdict, ends):
    answers = pd.DataFrame([
        line("delta", "fuzzy", first, better=better),
        line("gated-linear", "fuzzy", second, better=better),
    ])  # fmt: skip
    found = orderings(answers, NONE).set_index(["above", "below"])
    assert {*found["question"]} == {"fuzzy"}
    one = found.loc[("delta", "gated-linear")]
    assert one["verdict"] == verdict
    assert (one["low"], one["high"]) == pytest.approx(ends, nan_ok=True)
    assert found.loc[("mesa", "delta"), "verdict"] == "not run"


def test_an_order_of_a_probe_is_read_from_it():
    answers = pd.DataFrame([line(row, "recall", 50.0) for row in ("gated-delta", "softmax")])
    probes = pd.DataFrame([
        line("softmax", "recall", 99.0, probe="32 pairs in 128"),
        line("gated-delta", "recall", 90.0, probe="32 pairs in 256"),
        line("softmax", "recall", 10.0, probe="32 pairs in 256"),
    ])  # fmt: skip
    found = orderings(answers, probes).set_index(["above", "below"])
    assert found.loc[("gated-delta", "softmax"), "difference"] == 80
    assert found.loc[("softmax", "performer"), "verdict"] == "not run"


def test_every_published_ordering_is_of_two_variants_and_has_its_sources():
    assert len(published()) >= 14
    pairs = [(of["above"], of["below"], of["question"], of.get("probe")) for of in published()]
    assert len({*pairs}) == len(pairs)
    for of in published():
        assert of["grade"] in "ABC" and of["published"] and of["sources"]
        for row in (of["above"], of["below"]):
            Composition.parse(row.partition("[")[0])
