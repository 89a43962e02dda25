"""Sweeps made from records of costs: their tables, what they say, their figure and CSV."""

import csv
import io
import math

import pytest

from reports import tables
from reports.figures.cost import draw
from reports.pages import cost_files
from reports.pages.cost import cost_page, training_crossovers
from reports.scaling import Crossover
from reports.tables.cost import as_csv, crossover_text, sweeps
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


def test_a_row_has_exponents_of_one_sample_and_its_crossover():
    (sweep,) = sweeps(linear_sweep())
    linear, softmax = sweep.rows
    assert (linear.label, softmax.label) == ("linear", "softmax")
    # Batches have the same tokens, so that the time of a call of a linear variant is constant.
    assert linear.time_exponent and linear.time_exponent.value == pytest.approx(1)
    assert softmax.time_exponent and softmax.time_exponent.value == pytest.approx(2)
    crossing = linear.time_crossover
    assert crossing and (crossing.low, crossing.high) == pytest.approx((900, 1200), rel=0.001)
    assert crossover_text(crossing) == "900 to 1,200"
    assert crossover_text(linear.memory_crossover) == "below 256"


def test_a_claim_is_beside_its_exponent_on_the_page():
    page = cost_page(sweeps(linear_sweep()))
    assert "| linear | O(N) | 1.00 [1.00, 1.00] |" in page
    # The time of a sample is that of N^2, its memory that of N; the last length takes 2.048 s.
    line = "2.00 [2.00, 2.00] | 1.00 [1.00, 1.00] | undecided | below 256 | 20.5 | – |"
    assert f"| softmax | O(N²) or N log N | {line}" in page
    assert "| softmax | 256 (1.00×) | 512 (1.00×) |" in page
    assert "| softmax | 0.125 (0.500×) | 0.250 (0.500×) |" in page
    assert "training, layer: tokens=2048, dim=64, heads=2, fp32; CPU, 2 threads" in page


def test_each_column_of_the_csv_has_the_figure_of_its_name():
    (line,) = csv.DictReader(io.StringIO(as_csv(sweeps([record("none", 256, seconds=2, ratio=4)]))))
    assert {name: float(text) for name, text in line.items() if name in FIGURES} == FIGURES


def test_a_failed_cell_has_its_reason_and_is_never_a_number():
    records = [
        *linear_sweep(),
        record("yoso", 256, status="out_of_memory", reason="no|pipe <b>"),
        record("yoso", 512, status="skipped", reason="out of memory at 256 tokens"),
    ]
    page = cost_page(sweeps(records))
    assert "| yoso | out of memory | out of memory at 256 tokens | – | – |" in page
    assert "yoso at 256 tokens: out of memory: no&#124;pipe &lt;b&gt;" in page
    assert "yoso at 512 tokens" not in page
    lines = list(csv.DictReader(io.StringIO(as_csv(sweeps(records)))))
    (line,) = [one for one in lines if one["status"] == "out_of_memory"]
    assert line["seconds_median"] == "" and line["reason"] == "no|pipe <b>"
    assert "yoso at 256 tokens: out of memory: no|pipe <b>" in tables.cost_summary(records)


def test_a_cell_whose_reference_does_not_fit_in_memory_says_so():
    (good,) = [record("linear", 256)]
    assert good.measured
    measured = good.measured.model_copy(
        update={"ratio": None, "memory_ratio": None, "no_ratio": "softmax is out of memory"}
    )
    page = cost_page(sweeps([good.model_copy(update={"measured": measured})]))
    assert "linear at 256 tokens: no ratio: softmax is out of memory" in page
    assert "| linear | 1,000 |" in page


def without(one, **changes):
    """The record with other measured values."""
    return one.model_copy(update={"measured": one.measured.model_copy(update=changes)})


def test_an_old_ratio_is_that_to_sdpa_and_is_not_shown():
    old = [without(record("linear", n, ratio=0.25), reference="") for n in LENGTHS]
    (row,) = sweeps(old)[0].rows
    assert row.time_crossover is None and sweeps(old)[0].references == ""
    assert "| linear | 1,000 | 1,000 |" in cost_page(sweeps(old))
    assert row.remarks and "--rerun" in row.remarks[0]
    (line,) = csv.DictReader(io.StringIO(as_csv(sweeps(old[:1]))))
    assert (line["ratio_median"], line["seconds_median"]) == ("", "1.0")


def test_the_fastest_softmax_of_each_length_is_named():
    records = linear_sweep()
    records[-1] = without(records[-1], reference="sdpa")
    records[3] = without(records[3], reference="sdpa")
    (sweep,) = sweeps(records)
    assert sweep.references == "Fastest softmax: naive at 256, 512, 1,024; sdpa at 2,048 tokens."
    assert sweep.references in cost_page([sweep])


def test_the_memory_of_decoding_is_that_of_the_state_and_of_the_call():
    one = record("softmax", 256, operation="decode", causal=True)
    decoding = without(one, peak_bytes=2**10, memory_bytes=2**20, state_bytes=2**20 - 2**10)
    assert "| softmax | 1.00 (0.500×) |" in cost_page(sweeps([decoding]))
    # An old record has no sum, and its ratio is that of the calls alone.
    old = without(decoding, memory_bytes=None, peak_bytes=2**20, state_bytes=2**20)
    assert "| softmax | 2.00 |" in cost_page(sweeps([old]))


def test_a_crossover_in_memory_is_that_of_lengths_with_one_batch():
    ratios = {256: 2.0, 512: 0.5, 1024: 0.5, 2048: 0.5}
    rows = {
        batch: [without(record("linear", n), memory_ratio=ratio, memory_batch=batch)
                for n, ratio in ratios.items()]
        for batch in (1, None)
    }  # fmt: skip
    # Without the field, memory is that of the batch of the cell, which differs by length.
    found = {batch: sweeps(own)[0].rows[0].memory_crossover for batch, own in rows.items()}
    assert found[1] and crossover_text(found[1]) == "362" and found[None] is None


def test_time_is_compared_with_the_larger_of_the_two_limits():
    measured = record("linear", 256).measured
    # 10**9 operations at 10**10 per second take 0.1 s, 10**6 bytes at 10**9 take 0.001 s.
    assert measured and measured.over_limit == pytest.approx(10)


@pytest.mark.parametrize(
    "changes",
    [{"operation": "forward"}, {"dim": 128}, {"machine": "other"}, {"threads": 1},
     {"batching": "2"}, {"precision": "bf16"}, {"causal": True}],
    ids=str,
)  # fmt: skip
def test_cells_of_different_settings_are_in_different_sweeps(changes):
    records = [record("linear", 256), record("linear", 256, **changes)]
    first, second = sweeps(records)
    assert first.title != second.title


def test_sweeps_of_different_models_have_different_titles():
    model = {
        "depth": 2, "dim": 64, "heads": 2, "feed_forward": 128, "head": 128, "dropout": 0.1,
        "attention_dropout": 0.0, "positions": "learned",
    }  # fmt: skip
    models = [model, {**model, "recompute": "layer"}, {**model, "dropout": 0.0}]
    records = [record("linear", 256, level="step", model=one) for one in models]
    titles = {sweep.title for sweep in sweeps(records)}
    assert len(titles) == 3
    assert (
        "training, step: tokens=2048, dim=64, heads=2, depth=2, feed_forward=128, "
        "dropout=0.1, recompute=layer, head=128, fp32; CPU, 2 threads"
    ) in titles


def test_rows_with_different_options_are_labelled_by_them():
    records = [
        record("softmax", 256, options={"softmax": {"backend": kind}}) for kind in ("sdpa", "naive")
    ]
    (sweep,) = sweeps(records)
    assert [row.label for row in sweep.rows] == [
        "softmax (backend=naive)", "softmax (backend=sdpa)",
    ]  # fmt: skip


def test_the_figure_has_a_curve_of_each_row_for_time_and_memory():
    figure = draw(sweeps(linear_sweep()))
    time, memory = figure.axes
    curves = {str(line.get_label()): line for line in time.get_lines()}
    # Milliseconds of one sample.
    expected = [[n, 1000 * n / 2048] for n in LENGTHS]
    assert [list(point) for point in zip(*curves["linear"].get_data(), strict=True)] == expected
    assert len(memory.get_lines()) == 2
    # A sample of 2,048 tokens allocates one MiB.
    assert [list(line.get_ydata()) for line in memory.get_lines()] == [
        [n / 2048 for n in LENGTHS]
    ] * 2
    assert (time.get_xscale(), time.get_yscale()) == ("log", "log")


def test_a_sweep_without_any_measured_cell_has_a_page_and_no_panel():
    failed = [record("yoso", 256, status="crashed", reason="it was ended by SIGSEGV")]
    assert not draw(sweeps(failed)).axes
    assert b"SIGSEGV" in cost_files(failed)["cost.md"]


def test_the_files_are_the_same_for_records_in_any_order_and_none_without_records():
    records = linear_sweep()
    assert cost_files(records) == cost_files(records[::-1])
    assert set(cost_files(records)) == {"cost.md", "cost.csv", "cost.png", "cost.svg"}
    assert cost_files([]) == {}


def test_the_crossovers_are_those_of_the_fastest_row_of_the_largest_training_sweep():
    slow = [
        record("linear", n, seconds=9.0, ratio=2.0, options={"linear": {"chunk": 1}})
        for n in LENGTHS
    ]
    other = [record("linear", n, ratio=2.0, dim=128) for n in LENGTHS]
    forward = [record("linear", n, ratio=2.0, operation="forward") for n in LENGTHS]
    found = training_crossovers([*other, *slow, *forward, *linear_sweep()])
    assert found and found.texts["linear"] == ("900 to 1,200", "below 256")
    assert "dim=64" in found.caption and "256 to 2,048 tokens" in found.caption
    assert training_crossovers(forward) is None


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1000.2, 1000.2, "1,000"),
        (900, 1200, "900 to 1,200"),
        (0, 0, "below 256"),
        (0, 1200, "below 1,200"),
        (900, math.inf, "above 900"),
        (math.inf, math.inf, "above 2,048"),
        (0, math.inf, "undecided"),
    ],
)
def test_a_crossover_is_given_within_the_measured_lengths(low, high, text):
    assert crossover_text(Crossover(low, high, 256, 2048)) == text
