"""Sweeps made from costs: what they say of their rows, their tables, figure and CSV."""

import csv
import io
import math

import numpy as np
import pytest

from harness.records.frame import of_costs
from reports import cost
from tests.reports.conftest import make_cost as record

LENGTHS = (256, 512, 1024, 2048)
FIGURES = {
    "length": 256, "batch": 8, "dim": 64, "heads": 2, "threads": 2, "seconds_q1": 1.8,
    "seconds_median": 2, "seconds_q3": 2.4, "ratio_q1": 3.6, "ratio_median": 4, "ratio_q3": 4.8,
    "samples": 9, "peak_bytes": 2**17, "memory_bytes": 2**17, "memory_batch": 1,
    "memory_ratio": 0.5, "flops": 10**9, "parameters": 100,
    "required_bytes": 10**6, "flops_per_second": 5e8, "bytes_per_second": 5e5, "over_limit": 20,
    "limit_flops_per_second": 1e10, "limit_bytes_per_second": 1e9,
}  # fmt: skip


def linear_sweep():
    """Softmax with the time of one sample N^2, and a linear variant that crosses it at 1,000."""
    softmax = [record("softmax", n, seconds=n / 1000) for n in LENGTHS]
    return softmax + [record("linear", n, seconds=1.0, ratio=1000 / n) for n in LENGTHS]


def without(one, **changes):
    """The record with other measured values."""
    return one.model_copy(update={"measured": one.measured.model_copy(update=changes)})


def sweeps(*records):
    return cost.sweeps(of_costs(records))


def page(*records):
    """The page without its legend, in which no number is."""
    return cost.page(sweeps(*records)).partition("cost.svg")[2]


def csv_of(*records):
    text = cost.files(of_costs(records))["cost.csv"].decode()
    return [*csv.DictReader(io.StringIO(text))]


def test_a_row_has_exponents_of_one_sample_and_its_crossovers():
    (sweep,) = sweeps(*linear_sweep()).values()
    rows = cost.rows(sweep)
    assert [*rows.index] == ["linear", "softmax"]
    # Batches have the same tokens, so that the time of a call of a linear variant is constant.
    assert [fitted.value for fitted in rows["time"]] == pytest.approx([1, 2])
    assert rows.loc["linear", "faster"][:2] == pytest.approx((900, 1200), rel=0.001)
    assert rows.loc["linear", "smaller"].text == "below 256"


def test_the_page_has_every_figure_of_a_row_beside_its_claim():
    text = page(*linear_sweep())
    assert "| linear | O(N) | PyTorch | 1.00 [1.00, 1.00] |" in text
    # The time of a sample is that of N^2, its memory that of N; the last length takes 2.048 s.
    line = "2.00 [2.00, 2.00] | 1.00 [1.00, 1.00] | undecided | below 256 | 20.5 | – |"
    assert f"| softmax | O(N²) or N log N | PyTorch | {line}" in text
    assert "| softmax | 256 (1.00×) | 512 (1.00×) |" in text
    assert "| softmax | 0.125 (0.500×) | 0.250 (0.500×) |" in text


def test_each_column_of_the_csv_has_the_figure_of_its_name():
    (line,) = csv_of(record("none", 256, seconds=2, ratio=4))
    assert {name: float(text) for name, text in line.items() if name in FIGURES} == FIGURES
    (line,) = cost.lines(of_costs([record("none", 256, seconds=2, ratio=4)]))
    assert {name: line[name] for name in FIGURES} == FIGURES and line["time_exponent"] is None


def test_a_failed_cost_has_its_reason_and_is_never_a_number():
    records = [
        *linear_sweep(),
        record("yoso", 256, status="out_of_memory", reason="no|pipe <b>"),
        record("yoso", 512, status="skipped", reason="out of memory at 256 tokens"),
    ]
    text = page(*records)
    assert "| yoso | out of memory | out of memory at 256 tokens | – | – |" in text
    assert "yoso at 256 tokens: out of memory: no&#124;pipe &lt;b&gt;" in text
    assert "yoso at 512 tokens" not in text
    (line,) = [one for one in csv_of(*records) if one["status"] == "out_of_memory"]
    assert line["seconds_median"] == "" and line["reason"] == "no|pipe <b>"
    assert "yoso at 256 tokens: out of memory: no|pipe <b>" in cost.terminal(of_costs(records))


def test_a_ratio_that_is_missing_or_outdated_is_named_and_not_shown():
    alone = without(
        record("linear", 256), ratio=None, memory_ratio=None, no_ratio="softmax is out of memory"
    )
    assert "linear at 256 tokens: no ratio: softmax is out of memory" in page(alone)
    assert "| linear | 1,000 |" in page(alone)
    old = [without(record("linear", n, ratio=0.25), reference="") for n in LENGTHS]
    (sweep,) = sweeps(*old).values()
    assert cost.rows(sweep).loc["linear", "faster"] is None and cost.references(sweep) == ""
    assert cost.remarks(sweep) == [f"linear: {cost.OUTDATED}"]
    (line,) = csv_of(old[0])
    assert (line["ratio_median"], float(line["seconds_median"])) == ("", 1.0)


def test_the_fastest_softmax_of_each_length_is_named():
    records = linear_sweep()
    records[-1], records[3] = (without(records[i], reference="sdpa") for i in (-1, 3))
    (sweep,) = sweeps(*records).values()
    text = "Fastest softmax: naive at 256, 512, 1,024; sdpa at 2,048 tokens."
    assert cost.references(sweep) == text and text in page(*records)


def test_the_memory_of_decoding_is_that_of_the_state_and_of_the_call():
    one = record("softmax", 256, operation="decode", causal=True)
    decoding = without(one, peak_bytes=2**10, memory_bytes=2**20, state_bytes=2**20 - 2**10)
    assert "| softmax | 1.00 (0.500×) |" in page(decoding)
    # An old record has no sum, and its ratio is that of the calls alone.
    old = without(decoding, memory_bytes=None, peak_bytes=2**20, state_bytes=2**20)
    assert "| softmax | 2.00 |" in page(old)


@pytest.mark.parametrize(("batch", "found"), [(1, "362"), (None, None)])
def test_a_crossover_in_memory_is_that_of_lengths_with_one_batch(batch, found):
    ratios = zip(LENGTHS, (2.0, 0.5, 0.5, 0.5), strict=True)
    # Without a batch of memory it is that of the call, which differs by length.
    records = [
        without(record("linear", n), memory_ratio=ratio, memory_batch=batch) for n, ratio in ratios
    ]
    (sweep,) = sweeps(*records).values()
    crossing = cost.rows(sweep).loc["linear", "smaller"]
    assert (crossing and crossing.text) == found


@pytest.mark.parametrize(
    ("spec", "backend", "expected"),
    [
        ({}, "", "PyTorch"), ({}, "naive", "PyTorch"), ({}, "sdpa", "library"),
        ({}, "recurrent", "compiled loops"), ({}, "sdpa+folded", "library+PyTorch"),
        ({"precision": "bf16"}, "folded", "compiled loops"),
        ({"precision": "bf16", "device": "cuda"}, "folded", "PyTorch"),
        ({"device": "cuda"}, "triton", "Triton"),
        ({"operation": "decode", "causal": True}, "recurrent", "PyTorch"),
    ],
)  # fmt: skip
def test_what_computes_a_row_is_named(spec, backend, expected):
    one = without(record("linear", 256, **spec), backend=backend)
    assert one.computed_by == expected and f"| {expected} |" in page(one)
    assert csv_of(one)[0]["computed_by"] == expected


MODEL = {
    "depth": 2, "dim": 64, "heads": 2, "feed_forward": 128, "head": 128, "dropout": 0.1,
    "attention_dropout": 0.0, "positions": "learned",
}  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [{"operation": "forward"}, {"dim": 128}, {"machine": "other"}, {"threads": 1},
     {"batching": "2"}, {"precision": "bf16"}, {"causal": True},
     {"level": "step", "model": MODEL}],
    ids=str,
)  # fmt: skip
def test_costs_of_different_settings_are_in_different_sweeps(changes):
    assert len(sweeps(record("linear", 256), record("linear", 256, **changes))) == 2


def test_sweeps_of_different_models_have_different_titles():
    models = [MODEL, {**MODEL, "recompute": "layer"}, {**MODEL, "dropout": 0.0}]
    titles = {*sweeps(*(record("linear", 256, level="step", model=one) for one in models))}
    assert len(titles) == 3
    assert (
        "training, step: tokens=2048, dim=64, heads=2, depth=2, feed_forward=128, "
        "dropout=0.1, recompute=layer, head=128, fp32; CPU, 2 threads"
    ) in titles


def test_rows_with_different_options_are_labelled_by_them():
    kinds = [{"softmax": {"backend": kind}} for kind in ("sdpa", "naive")]
    (sweep,) = sweeps(*(record("softmax", 256, options=kind) for kind in kinds)).values()
    assert [*cost.rows(sweep).index] == ["softmax[backend=naive]", "softmax[backend=sdpa]"]


def test_the_figure_has_a_curve_of_each_row_for_time_and_memory():
    time, memory = cost.draw(sweeps(*linear_sweep())).axes
    curves = {str(line.get_label()): line.get_xydata().tolist() for line in time.get_lines()}
    # Milliseconds of one sample.
    assert curves["linear"] == [[n, pytest.approx(1000 * n / 2048)] for n in LENGTHS]
    # A sample of 2,048 tokens allocates one MiB.
    assert [line.get_ydata().tolist() for line in memory.get_lines()] == [
        [n / 2048 for n in LENGTHS]
    ] * 2
    stars = [line for line in time.get_lines() if line.get_marker() == "*"]
    assert [line.get_xdata()[0] for line in stars] == pytest.approx(
        [math.sqrt(900 * 1200)], rel=0.01
    )
    assert (time.get_xscale(), time.get_yscale()) == ("log", "log")


def test_a_sweep_without_any_measured_cost_has_a_page_and_no_panel():
    failed = record("yoso", 256, status="crashed", reason="it was ended by SIGSEGV")
    assert not cost.draw(sweeps(failed)).axes
    assert "SIGSEGV" in page(failed)


def test_the_files_are_the_same_for_costs_in_any_order_and_none_without_costs():
    found, other = (cost.files(of_costs(linear_sweep()[::step])) for step in (1, -1))
    assert found == other and {*found} == {"cost.md", "cost.csv", "cost.png", "cost.svg"}
    assert cost.files(of_costs([])) == {}


def test_the_crossovers_are_those_of_the_fastest_row_of_the_largest_training_sweep():
    slow = [
        record("linear", n, seconds=9.0, ratio=2.0, options={"linear": {"chunk": 1}})
        for n in LENGTHS
    ]
    other = [record("linear", n, ratio=2.0, dim=128) for n in LENGTHS]
    forward = [record("linear", n, ratio=2.0, operation="forward") for n in LENGTHS]
    found = cost.training_crossovers(of_costs([*other, *slow, *forward, *linear_sweep()]))
    assert found and found.texts["linear"] == ("900 to 1,200", "below 256")
    assert "dim=64" in found.caption and "256 to 2,048 tokens" in found.caption
    assert cost.training_crossovers(of_costs(forward)) is None


def test_time_is_compared_with_the_larger_of_the_two_limits():
    # 10**9 operations at 10**10 per second take 0.1 s, 10**6 bytes at 10**9 take 0.001 s.
    assert of_costs([record("linear", 256)])["over_limit"].tolist() == pytest.approx([10])
    assert np.isnan(of_costs([record("linear", 256, status="timeout")])["over_limit"][0])
