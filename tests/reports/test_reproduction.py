"""The reproduced table: ratios, published columns, failures and sentences."""

import csv
from dataclasses import replace

import pytest

from harness.records.cost import CostRecord, CostSpec, Limits, Measured
from harness.records.fields import Quartiles
from harness.records.record import Environment
from reports.pages import reproduction_files
from reports.pages.reproduction import sentences
from reports.tables import reproduction_summary
from reports.tables.reproduction import Entry

ENVIRONMENT = Environment(
    device="GPU", threads=1, memory_gib=1.0, system="Linux", versions={}, commit="abc"
)


def same(value):
    return Quartiles(q1=value, median=value, q3=value)


def record(attention, seconds, ratio, status="ok", reason=""):
    spec = CostSpec(
        attention=attention, options={}, level="layer", operation="train", length=2000, batch=32,
        batching="32", dim=64, heads=2, causal=False, model=None, precision="fp32", device="cuda",
        machine="GPU", threads=1,
    )  # fmt: skip
    measured = Measured(
        seconds=same(seconds), samples=9, ratio=same(ratio) if ratio else None,
        no_ratio="" if ratio else "softmax is out of memory", peak_bytes=10**9,
        memory_ratio=2.0 if ratio else None, flops=1, analytic_flops=None, backend="folded",
        required_bytes=1, parameters=1, state_bytes=None,
        limits=Limits(bytes_per_second=1, flops_per_second=1), reference="sdpa" if ratio else "",
    )  # fmt: skip
    return CostRecord(
        spec=spec, status=status, reason=reason, started="2026-01-01T00:00:00+00:00", seconds=1.0,
        environment=ENVIRONMENT, options={}, claims_linear=True,
        measured=measured if status == "ok" else None,
    )  # fmt: skip


NAIVE = record("softmax", 0.2, 4.0)
PRIMAL = Entry("listops@1", "primal", record("primal", 0.0113, 0.5), NAIVE)


def files(*entries):
    return {name: text.decode() for name, text in reproduction_files(entries, "paper").items()}


def test_a_ratio_to_naive_softmax_is_that_of_two_ratios_to_the_fastest():
    assert PRIMAL.time_over_naive == 0.125 and PRIMAL.time_over_fastest == 0.5
    assert PRIMAL.time == pytest.approx(11.3) and PRIMAL.memory == 1.0


def test_ratios_to_two_softmaxes_are_not_divided():
    measured = NAIVE.measured.model_copy(update={"reference": "naive"}) if NAIVE.measured else None
    entry = replace(PRIMAL, naive=NAIVE.model_copy(update={"measured": measured}))
    assert entry.time_over_naive == pytest.approx(0.0113 / 0.2)


def test_published_figures_have_columns_of_their_own_with_their_source():
    made = files(PRIMAL)
    (line,) = csv.DictReader(made["table3.csv"].splitlines())
    assert float(line["seconds_per_1k_steps_median"]) == pytest.approx(11.3)
    assert line["published_seconds_per_1k_steps"] == "56.5"
    assert line["published_peak_memory_gb"] == "0.69"
    assert float(line["published_time_over_softmax"]) == pytest.approx(56.5 / 194.5)
    assert line["source"] == "Chen et al. 2023 (arXiv 2305.19798), Table 3"
    assert line["backend"] == "folded"
    assert "| primal | 11.3 | 56.5 |" in made["table3.md"]
    assert "11.3 (56.5)" in reproduction_summary([PRIMAL])


def test_a_row_has_a_sentence_with_its_ratio_to_the_published_figures():
    (sentence,) = sentences([PRIMAL])
    assert sentence.startswith(
        "primal: time is 0.200 times and memory is 1.45 times the published one. The published"
    )


def test_a_row_without_published_figures_says_what_is_not_known():
    (sentence,) = sentences([Entry("listops@1", "linear", record("linear", 1.0, 1.0), NAIVE)])
    assert sentence == "linear: Nothing is known of a published implementation."


def test_a_cell_without_a_value_has_its_reason_and_no_ratio():
    out = record("softmax", 1.0, None, "out_of_memory", "64 GiB were asked for")
    alone = record("primal", 0.1, None)
    entries = [Entry("text@2", "softmax", out, out), Entry("text@2", "primal", alone, out)]
    page = files(*entries)["table3.md"]
    assert "| softmax (naive) | out of memory | 695 |" in page
    assert "softmax (naive), text@2: out of memory: 64 GiB were asked for" in page
    assert "primal, text@2: no ratio: softmax is out of memory" in page
    assert "| primal | – | 0.135 |" in page
    assert entries[1].time_over_naive is None and entries[1].memory_over_naive is None


def test_figures_of_shapes_that_were_not_published_have_no_published_column():
    entry = Entry("listops@1[max_len=64]", "primal", record("primal", 1.0, 1.0), NAIVE)
    page = files(entry)["table3.md"]
    assert "those of other shapes are not shown" in page and "56.5" not in page
