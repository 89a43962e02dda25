from io import StringIO

import pandas as pd
import pytest

from reports.rows import boards
from reports.tidy import table


def read(records):
    text = table(boards(records)).to_csv(index=False)
    return pd.read_csv(StringIO(text), index_col="attention")


def test_a_row_holds_every_digit_and_the_quartiles(record):
    given = [record("primal", seed=n, accuracy=a) for n, a in enumerate((1 / 3, 0.4))]
    row = read(given).loc["primal"]
    assert row.test_accuracy_percent == 100 * (1 / 3 + 0.4) / 2
    assert (row.kind, row.status, row.runs, row.runs_ok) == ("measured", "ok", 2, 2)
    assert (row.seeds, row.interval_over, row.options) == ("0 1", "seeds", '{"primal": {}}')
    quartiles = [row[f"seconds_per_1k_steps_{q}"] for q in ("q1", "median", "q3")]
    assert quartiles == pytest.approx([90.0, 100.0, 120.0])
    assert (row.peak_memory_mib, row.softmax_peak_memory_mib) == (300.0, 400.0)
    assert (row.time_ratio_median, row.memory_ratio) == (0.5, 0.75)


def test_the_setting_of_a_run_stands_in_columns_of_its_fields(record):
    row = read([record(model={"positions": "rotary"}, train={"warmup": 5})]).loc["softmax"]
    assert (row.task_name, row.task_key, row.budget, row.device) == (
        "listops", "listops@1", "paper", "cuda"
    )  # fmt: skip
    assert (row.model_positions, row.model_dropout, row.train_warmup) == ("rotary", 0.1, 5)
    assert (row.train_betas, row.task_options, row.task_block) == ("[0.9, 0.999]", "{}", 0)
    assert row.machine == "NVIDIA H100"


def test_a_failure_has_a_status_a_reason_and_empty_cells(record):
    failed = record("primal", status="diverged", reason="loss is nan", measured=False)
    row = read([record(), failed]).loc["primal"]
    assert (row.status, row.reason, row.runs_ok) == ("diverged", "diverged: loss is nan", 0)
    assert row[["test_accuracy_percent", "seconds_per_1k_steps_median", "parameters"]].isna().all()


def test_a_cost_without_softmax_beside_it_has_no_ratio(record):
    row = read([record("primal", softmax=None, mib=300.0)]).loc["primal"]
    assert (row.peak_memory_mib, row.parameters) == (300.0, 123_456)
    ratios = [name for name in row.index if "ratio" in name or name.startswith("softmax")]
    assert len(ratios) == 8 and row[ratios].isna().all()


def test_floors_are_rows_of_their_own_kind(record):
    found = read([record()])
    assert found.kind.to_dict() == {"softmax": "measured", "majority": "floor", "chance": "floor"}
    assert found.test_accuracy_percent["majority"] == 17.0
    assert pd.isna(found.paper_accuracy_percent["majority"])


def test_published_numbers_stand_in_their_own_columns_with_their_source(record):
    row = read([record("primal", accuracy=0.9, seconds=1.0, mib=2.0)]).loc["primal"]
    paper = (row.paper_accuracy_percent, row.paper_seconds_per_1k_steps, row.paper_peak_memory_gb)
    assert paper == (37.3, 56.5, 0.69)
    assert row.paper_source.count("arXiv 2305.19798") == 2
    ours = (row.test_accuracy_percent, row.seconds_per_1k_steps_median, row.peak_memory_mib)
    assert ours == (90.0, 1.0, 2.0)


def test_no_records_give_the_headings_alone():
    found = read([])
    assert len(found) == 0
    assert "test_accuracy_percent" in found.columns
