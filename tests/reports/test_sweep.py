"""Sweeps: accuracy against one option, from records."""

import csv
import io
from xml.etree import ElementTree

import pytest

from harness.records.record import Record
from reports.pages import sweep_files
from reports.tables.sweep import sweeps, value_of
from tests.reports.conftest import make_record


def on_pairs(
    attention: str, pairs: int, accuracy: float = 0.5, state: int | None = None, **fields
) -> Record:
    """A run of a task with an option, 8 by default, whose data depend on it."""
    key = "mqar@3" if pairs == 8 else f"mqar@3[vocabulary=64,pairs={pairs}]"
    key = "mqar@3[vocabulary=64]" if pairs == 8 else key
    tree = make_record(attention, task="mqar", key=key, accuracy=accuracy, **fields).model_dump()
    tree["spec"]["task"] |= {
        "options": {"pairs": pairs, "vocabulary": 64}, "digests": {"test": f"{pairs:064}"},
    }  # fmt: skip
    if state is not None:
        tree["cost"]["own"]["state_bytes"] = state
    return Record.model_validate(tree)


LADDER = [
    on_pairs("softmax", 4, 0.9), on_pairs("softmax", 8, 0.8), on_pairs("linear", 4, 0.7, 2048),
    *(on_pairs("linear", 16, 0.4 + seed / 10, 4096, seed=seed) for seed in range(2)),
]  # fmt: skip


def test_runs_that_differ_in_the_option_alone_are_one_sweep():
    (sweep,) = sweeps(LADDER[::-1], "task.pairs")
    assert sweep.values == (4, 8, 16)
    assert sweep.title.startswith("mqar@3[vocabulary=64], budget paper")
    curves = {curve.label: [*curve.rows] for curve in sweep.curves}
    assert curves == {"linear": [4, 16], "softmax": [4, 8]}
    assert [len(row.runs) for row in sweep.curves[0].rows.values()] == [1, 2]
    assert sweeps(LADDER, "mqar.pairs")[0].curves == sweep.curves


@pytest.mark.parametrize(
    "other", [{"budget": "laptop"}, {"machine": "another"}, {"train": {"lr": 1.0}}]
)
def test_another_setting_is_no_part_of_a_sweep(other):
    (sweep,) = sweeps([*LADDER, on_pairs("softmax", 32, **other)], "task.pairs")
    assert sweep.values == (4, 8, 16)


def test_threads_and_precision_are_no_part_of_the_setting_of_a_sweep():
    # A grid with two workers has one thread a run, and a sweep after it has two.
    depths = [
        make_record(model={"depth": depth}, overrides={"model.depth": depth}, device="cpu",
                    threads=threads, train={"precision": precision})
        for depth, threads, precision in ((1, 1, "bf16"), (4, 2, "bf16"), (8, 2, "fp32"))
    ]  # fmt: skip
    (sweep,) = sweeps(depths, "model.depth")
    assert sweep.values == (1, 4, 8) and "1 or 2 threads" in sweep.title
    # A run in both precisions is one seed, the later one.
    again = make_record(model={"depth": 4}, overrides={"model.depth": 4}, device="cpu",
                        train={"precision": "fp32"}, accuracy=0.9,
                        started="2026-11-22T08:00:00Z")  # fmt: skip
    (row,) = (curve.rows[4] for curve in sweeps([*depths, again], "model.depth")[0].curves)
    assert [run.final.score for run in row.runs if run.final] == [90.0]


def test_fields_of_the_model_and_options_of_variants_are_swept():
    widths = [
        make_record(model={"dim": dim}, overrides={"model.dim": dim} if dim != 64 else {})
        for dim in (128, 64, 32)
    ]
    assert sweeps(widths, "model.dim")[0].values == (32, 64, 128)
    ranks = [make_record("primal", options={"primal": {"rank": r, "eta": 0.1}}) for r in (9, 30)]
    (sweep,) = sweeps([*ranks, *widths], "primal.rank")
    assert [(curve.label, [*curve.rows]) for curve in sweep.curves] == [("primal", [9, 30])]
    assert value_of(widths[0].spec, "primal.rank") is None


def test_the_files_hold_every_accuracy_and_state():
    failed = on_pairs("linear", 8, status="diverged", reason="loss is nan")
    made = sweep_files([*LADDER, failed], "task.pairs")
    page = made["sweep_task_pairs.md"].decode()
    table, states = page.split("Memory of the state")
    assert table.count("| linear |") == 1 and "diverged: loss is nan" in table
    assert "| linear | 2,048 | – | 4,096 |" in states and "softmax" not in states
    rows = [*csv.DictReader(io.StringIO(made["sweep_task_pairs.csv"].decode()))]
    assert [(row["attention"], row["value"], row["seeds"]) for row in rows] == [
        ("linear", "4", "1"), ("linear", "8", "1"), ("linear", "16", "2"), ("softmax", "4", "1"),
        ("softmax", "8", "1"),
    ]  # fmt: skip
    assert rows[2]["metric"] == "accuracy, %"
    assert float(rows[2]["test"]) == pytest.approx(45)
    ElementTree.fromstring(made["sweep_task_pairs.svg"])


def test_a_store_without_a_sweep_makes_no_page():
    with pytest.raises(ValueError, match=r"no two runs of the store differ in task\.pairs alone"):
        sweep_files(LADDER[:1], "task.pairs")
