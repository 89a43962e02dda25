"""The frames of a store: their columns, and the values of a small one."""

import math
import re

import pytest

import harness
from harness.records.answers import ClusterValues
from harness.records.frame import MEASURED, OF_COSTS, OF_RUNS, OF_STEPS, OUTCOME, costs
from harness.records.spec import Encoder, TrainSpec
from harness.records.store import CostStore, Store
from harness.stores import content
from tasks import metrics
from tests.conftest import ROOT
from tests.reports.conftest import costs_of, make_record
from tests.reports.test_cost import record as make_cost

PAGE = (ROOT / "docs" / "records.md").read_text("utf-8")


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


@pytest.fixture
def frame(tmp_path):
    recall = make_record(
        "primal", budget="laptop@3/recall", options={"primal": {"rank": 8}},
        overrides={"primal.rank": 8, "train.lr": 1e-4}, correct=[True] * 60 + [False] * 40,
    )  # fmt: skip
    sample = ClusterValues(sizes=(10, 30), sums=(20.0, 60.0))
    language = make_record("softmax", seed=1).model_copy(
        update={"metric": metrics.find("perplexity").metric}
    )
    final = language.final.model_copy(update={"score": math.exp(2), "dev": 9.0, "sample": sample})
    failed = make_record("none", status="failed", reason="no GPU")
    for run in (recall, language.model_copy(update={"final": final}), failed):
        Store(tmp_path).write(run)
    for cost in costs_of(recall):
        CostStore.within(tmp_path).write(cost)
    return harness.load(tmp_path).set_index("attention", drop=False)


def test_the_page_names_every_column(frame):
    lines = [line for line in section("Runs").splitlines() if line.startswith("| `")]
    names = {name for line in lines for name in re.findall(r"`([\w.]+)`", line.split("|")[1])}
    expected = {name for name in names if name == name.lower()}  # without task.OPTION
    expected |= {f"model.{name}" for name in Encoder.model_fields}
    expected |= {f"train.{name}" for name in TrainSpec.model_fields}
    expected |= {"primal.rank", "versions.python", "versions.torch"}
    for name in ("time_ratio", "inference_ratio", "step_seconds", "tokens_per_second"):
        expected |= {f"{name}.q1", f"{name}.q3"}
    assert {*frame.columns} == expected


def test_each_row_has_the_values_of_its_record(frame):
    row = frame.loc["primal"]
    assert (row["row"], row.suite, row.question) == ("primal[rank=8]", "laptop@3", "recall")
    assert (row.metric, row.unit, row.better, row.chance) == ("accuracy", "%", "higher", 10.0)
    assert (row.score, row.dev, row["time_ratio"]) == (60.0, 61.0, 0.5)
    assert (row["step_seconds"], row["tokens_per_second"]) == (0.1, 640_000.0)
    # Wilson's interval of 60 of 100 is 50.2 to 69.1.
    assert (row.low, row.high) == pytest.approx((50.2, 69.1), abs=0.3)
    assert row["train.optimiser"] == "adamw" and row["primal.rank"] == 8 and not row.baseline
    row = frame.loc["softmax"]
    assert (row.metric, row.unit, row.better) == ("perplexity", "", "lower")
    # Both clusters have the mean 2: the interval, in the unit of the metric, has no width.
    assert (row.low, row.score, row.high) == pytest.approx((math.exp(2),) * 3)
    row = frame.loc["none"]
    assert (row.status, row.reason, row.baseline) == ("failed", "no GPU", True)
    assert row[["score", "low", "time_ratio"]].isna().all() and row.parameters == 123_456


def test_every_column_of_a_table_of_paths_is_a_field():
    run = make_record("primal", role="trial")
    cost, inference = costs_of(run)
    tables = (run, OF_RUNS), (run, OUTCOME), (cost, OF_COSTS), (cost, OF_STEPS["train"])
    for record, table in (*tables, (inference, OF_STEPS["forward"])):
        for path in table.values():
            # Only the last field may be None: a field of None would not be found missing.
            value = record
            for name in path.split("."):
                # Only records of this version have processor seconds.
                value = None if value is None and "processor" in path else getattr(value, name)


def test_a_row_of_costs_has_the_values_of_its_record(tmp_path):
    CostStore.within(tmp_path).write(make_cost("linear", 256, seconds=2.0, ratio=4.0))
    (row,) = (frame := costs(tmp_path)).to_dict("records")
    documented = {name for name in re.findall(r"`(\w+)`", section("Costs")) if name == name.lower()}
    assert {*frame.columns} == {*MEASURED} | documented - {"library"}
    assert (row["pass"], row["length"], row["linear"]) == ("train", 256, True)
    assert (row["seconds"], row["ratio"], row["ratio.q3"]) == (2.0, 4.0, 4.8)
    assert (row["memory"], row["memory_ratio"], row["over_limit"]) == (2**17, 0.5, 20.0)


def test_of_a_run_that_several_stores_have_the_last_record_counts(tmp_path):
    folders = [tmp_path / name for name in ("first", "second")]
    failed = make_record("primal", status="failed", reason="later")
    for record in (make_record("softmax"), make_record("primal")):
        Store(folders[0]).write(record)
    for record in (make_record("none"), failed):
        Store(folders[1]).write(record)
    found = harness.load(folders).set_index("attention")
    assert dict(found["status"]) == {"softmax": "ok", "primal": "failed", "none": "ok"}
    assert len(found) == len(content(*folders).records) == 3
    # Costs are of the machines of the last store that has any.
    for name, machine, length in (("a", "here", 1), ("b", "other", 2), ("c", "here", 4)):
        CostStore.within(tmp_path / name).write(make_cost("linear", length, machine=machine))
    measured = content(*(tmp_path / name for name in ("a", "b", "c", "without"))).measured
    assert [cost.spec.length for cost in measured] == [1, 4]
