"""Costs: exponents and crossovers, and the sweeps made from them: tables, figure and CSV."""

import math

import pandas as pd
import pytest

from harness.records.frame import costs as published
from harness.records.frame import of_costs
from harness.records.suites import find
from reports import cost, layer_costs
from reports.layer_costs import crossover, exponent, with_compositions
from tests.conftest import ROOT
from tests.reports.conftest import changed, snapshot
from tests.reports.conftest import make_cost as record

pytestmark = pytest.mark.usefixtures("unrendered")

LENGTHS = (256, 512, 1024, 2048)
MODEL = {
    "kind": "encoder", "depth": 2, "dim": 64, "heads": 2, "feed_forward": 128, "head": 128,
    "dropout": 0.1, "attention_dropout": 0.0, "positions": "learned",
}  # fmt: skip


def linear_sweep():
    """Softmax with the time of one sample N^2, and a linear variant that crosses it at 1,000."""
    softmax = [record("softmax", n, seconds=n / 1000) for n in LENGTHS]
    return softmax + [record("linear", n, seconds=1.0, ratio=1000 / n) for n in LENGTHS]


def sweeps(*records):
    return cost.sweeps(of_costs(records))


def store():
    small = record("softmax", 256, operation="decode", causal=True)
    decoding = changed(
        small, "measured", peak_bytes=2**10, memory_bytes=2**20, state_bytes=2**20 - 2**10
    )
    sdpa = {"softmax": {"backend": "sdpa"}}
    no_ratio = {"ratio": None, "memory_ratio": None, "no_ratio": "softmax is out of memory"}
    return [
        *linear_sweep()[:-1], changed(linear_sweep()[-1], "measured", reference="sdpa"),
        record("yoso", 256, status="out_of_memory", reason="no|pipe <b>"),
        record("yoso", 512, status="skipped", reason="out of memory at 256 tokens"),
        changed(record("alone", 256), "measured", **no_ratio),
        record("none", 256, seconds=2, ratio=4), decoding,
        changed(record("softmax", 256, options=sdpa), "measured", backend="sdpa"),
        changed(record("linear", 256, precision="bf16"), "measured", backend="recurrent"),
        record("primal", 256, level="step", model=MODEL),
    ]  # fmt: skip


def test_the_page_the_table_and_the_terminal_are_the_approved_ones():
    files = cost.files(of_costs(store()))
    snapshot("cost.md", files["cost.md"].decode())
    snapshot("cost.csv", files["cost.csv"].decode())
    snapshot("cost.txt", cost.terminal(of_costs(store())) + "\n")
    again = cost.files(of_costs(store()[::-1]))
    assert again == files and {*files} == {"cost.md", "cost.csv", "cost.png", "cost.svg"}
    assert cost.files(of_costs([])) == {}


@pytest.mark.parametrize(("spec", "backend", "expected"), [
    ({}, "", "PyTorch"), ({}, "recurrent", "compiled loops"),
    ({}, "sdpa+folded", "library+PyTorch"),
    ({"operation": "decode", "causal": True}, "recurrent", "PyTorch"),
])  # fmt: skip
def test_what_computes_a_row_is_named(spec, backend, expected):
    found = changed(record("linear", 256, **spec), "measured", backend=backend)
    assert found.computed_by == expected


def test_costs_of_different_settings_are_in_different_sweeps_and_training_is_first():
    step = {"level": "step", "model": MODEL}
    changes = (
        {"dim": 32, "batching": "tokens=16384"},
        {"operation": "decode", "batching": "1", "causal": True}, {"batching": "tokens=16384"}, {},
        {"dim": 32}, {"operation": "forward"}, {"machine": "other"}, {"threads": 1},
        {"precision": "bf16"}, {"causal": True}, step,
        *({**step, "model": {**MODEL, **of}} for of in ({"recompute": "layer"}, {"dropout": 0.0})),
    )  # fmt: skip
    titles = [*sweeps(*(record("linear", 256, **of) for of in changes))]
    assert len({*titles}) == len(changes)
    assert any("dropout=0.1, recompute=layer" in title for title in titles)
    # As the matrix has it.
    page = cost.files(of_costs([record("linear", 256, **of) for of in changes[:3]]))["cost.md"]
    *heads, _ = [line for line in page.decode().splitlines() if line.startswith("## ")]
    parts = (("training, layer", "dim=64"), ("decoding",), ("training, layer", "dim=32"))
    for head, texts in zip(heads, parts, strict=True):
        assert all(text in head for text in texts)


def test_the_figure_has_a_curve_of_each_row_for_time_and_memory():
    assert not cost.draw(sweeps(record("yoso", 256, status="crashed"))).axes
    time, memory = cost.draw(sweeps(*linear_sweep())).axes
    curves = {str(line.get_label()): line.get_xydata().tolist() for line in time.get_lines()}
    # Milliseconds of one sample.
    assert curves["linear"] == [[n, pytest.approx(1000 * n / 2048)] for n in LENGTHS]
    # A sample of 2,048 tokens allocates one MiB.
    sizes = [line.get_ydata().tolist() for line in memory.get_lines()]
    assert sizes == [[n / 2048 for n in LENGTHS]] * 2
    (star,) = (line.get_xdata()[0] for line in time.get_lines() if line.get_marker() == "*")
    assert star == pytest.approx(math.sqrt(900 * 1200), rel=0.01)
    assert (time.get_xscale(), time.get_yscale()) == ("log", "log")


COUNTS = [256, 512, 1024, 2048, 4096]
BELOW, ABOVE = dict.fromkeys(COUNTS, 0.5), dict.fromkeys(COUNTS, 2.0)


def test_a_power_law_has_its_exponent_and_no_width_and_two_lengths_have_none():
    for power in (0.0, 1.0, 1.5, 2.0):
        fitted = exponent({n: 3e-6 * n**power for n in COUNTS})
        assert fitted and fitted == pytest.approx((power, power, power), abs=1e-6)
    # Only the longest lengths are fitted.
    fitted = exponent({n: max(2048.0, n) ** 2 for n in [256, 1024, 2048, 4096, 8192, 16384]})
    assert fitted and fitted.value == pytest.approx(2.0)
    assert exponent({256: 1.0, 512: 2.0}) is None


def test_the_interval_of_an_exponent_is_that_of_the_slope_of_a_least_squares_line():
    # Of log2: x = -1.5 .. 1.5, residuals 0.1 (1, -1, -1, 1): their squares over 2 and over 5.
    costs = {2**n: 2 ** (n + 0.1 * sign) for n, sign in zip(range(4), (1, -1, -1, 1), strict=True)}
    # Student's 97.5 % quantile with two degrees of freedom.
    half = 4.302653 * math.sqrt(4 * 0.1**2 / 2 / 5)
    fitted = exponent(pd.Series(costs))
    assert fitted and fitted == pytest.approx((1, 1 - half, 1 + half))


RETURNS = {256: 0.9, 512: 1.1, 1024: 0.9, 2048: 1.25, 4096: 0.8}


@pytest.mark.parametrize(("low", "high", "expected", "text"), [
    ({n: 800 / n for n in COUNTS}, {n: 1500 / n for n in COUNTS}, (800, 1500), "800 to 1,500"),
    # A ratio that returns above 1 crosses at its last fall, linear in logarithms.
    (RETURNS, RETURNS, (math.sqrt(2**23),) * 2, "2,896"),
    (BELOW, BELOW, (0, 0), "below 256"), (BELOW, ABOVE, (0, math.inf), "undecided"),
    (ABOVE, ABOVE, (math.inf, math.inf), "not up to 4,096"),
    (BELOW, {n: 1500 / n for n in COUNTS}, (0, 1500), "below 1,500"),
    ({n: 800 / n for n in COUNTS}, ABOVE, (800, math.inf), "above 800"),
])  # fmt: skip
def test_ratios_cross_where_they_are_one_or_at_a_bound(low, high, expected, text):
    found = crossover(pd.Series(low), high)
    assert found == pytest.approx((*expected, 256, 4096)) and found.text == text
    assert crossover({}, {}) is None


def test_the_costs_of_a_row_are_those_with_the_options_of_all_questions():
    costs = published(ROOT / "results")
    costs = costs[costs["row"] != "performer[features=64]"]
    costs = costs.replace({"row": {"ssd": "performer[features=64]"}})
    found = layer_costs.of_suite(costs, find("laptop")).set_index("row")["attention"]
    assert {*found.loc[["performer"]]} == {"ssd"} and "performer[features=64]" not in found.index


def test_of_costs_of_one_shape_the_best_ratio_is_first():
    costs = pd.DataFrame({
        "row": ["slow process", "fast process", "no ratio", "old"], "seconds": [1.1, 1.0, 0.1, 0.1],
        "ratio": [1.0, 1.1, math.nan, 0.5], "outdated": [False, False, False, True],
    })  # fmt: skip
    assert [*layer_costs.preferred_first(costs)["row"]] == [*costs["row"]]


def test_the_figure_has_seconds_of_one_day():
    # The second row was measured on a day that is twice as slow.
    sweep = pd.DataFrame({
        "length": [8, 8, 8, 16], "sample_seconds": [1.0, 4.0, 1.5, 7.0],
        "ratio": [1.0, 2.0, 1.5, math.nan],
    })  # fmt: skip
    assert cost._of_one_day(sweep)["sample_seconds"].tolist() == [1.0, 2.0, 1.5, 7.0]


def test_a_composition_without_costs_has_the_mean_over_its_layers():
    found = pd.DataFrame([
        {"row": row, "pass": "train", "length": length, "ratio": ratio, "label": row}
        for row, ratios in {"a": (1.0, 0.5), "b": (0.2, 0.1), "c": (0.4,)}.items()
        for length, ratio in zip((1024, 4096), ratios, strict=False)
    ])  # fmt: skip
    rows = {"a": "a", "a+b": "a+b", "b+c": "b+c", "b*3+a": "b*3+a", "c+d": "c+d"}
    every = with_compositions(found, rows, depth=4).set_index(["row", "length"])["ratio"]
    assert every["a+b"].to_dict() == pytest.approx({1024: 0.8, 4096: 0.4})  # three layers of four
    assert every["b*3+a"].to_dict() == pytest.approx({1024: 0.4, 4096: 0.2})
    # A length that a layer lacks has no mean, and a layer without costs none at all.
    assert every["b+c"].to_dict() == pytest.approx({1024: 0.25}) and "c+d" not in every
    assert with_compositions(found, {"a": "a"}, depth=2) is found
