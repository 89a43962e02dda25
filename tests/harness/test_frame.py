"""The frames of a store: their columns, and the values of a small one."""

import math

import pytest

import harness
from harness.records.answers import ClusterValues
from harness.records.frame import costs
from harness.records.store import CostStore, Store
from tasks import metrics
from tests.reports.conftest import make_record
from tests.reports.test_cost import record as make_cost

COLUMNS = """
attention row recipe suite question task task.name task.block model.depth model.dim model.heads
model.feed_forward model.dropout model.attention_dropout model.short_conv model.recompute
model.norm model.kind model.head model.positions model.pooling train.batch train.steps
train.warmup train.lr train.betas train.cycle_momentum train.eps train.weight_decay
train.evaluations train.precision train.compiled train.bucket_by_length train.optimiser
train.schedule train.clip train.best_on_test train.decay train.label_smoothing train.augment
primal.rank seed device role status reason metric unit better digits chance parameters flops score
low high dev sample best_step train_seconds seconds loss time_ratio inference_ratio memory_ratio
step_seconds step_seconds.q1 step_seconds.q3 time_ratio.q1 time_ratio.q3 inference_ratio.q1
inference_ratio.q3 tokens_per_second tokens_per_second.q1 tokens_per_second.q3 reference
inference_reference peak_bytes softmax_peak_bytes softmax_parameters state_bytes backend workers
options overrides grid distance match best_on_test test_examples dev_metric dev_better dev_digits
last_step expected_failures machine threads memory_gib system commit
versions.torch versions.python started baseline id data scale exponential known_failures
"""
COSTS = """
row label attention level length batch batching dim heads pass causal depth model options precision
device machine threads status reason linear computed_by started commit shape id seconds seconds.q1
seconds.q3 samples ratio ratio.q1 ratio.q3 no_ratio measured_ratio reference memory memory_batch
memory_ratio peak_bytes state_bytes flops analytic_flops required_bytes parameters over_limit
limit_bytes_per_second limit_flops_per_second backend
"""


@pytest.fixture
def frame(tmp_path):
    """Three runs: of a suite, of a language model, and one that failed."""
    recall = make_record(
        "primal", budget="laptop@1/recall", options={"primal": {"rank": 8}},
        overrides={"primal.rank": 8, "train.lr": 1e-4}, correct=[True] * 60 + [False] * 40,
    )  # fmt: skip
    sample = ClusterValues(sizes=(10, 30), sums=(20.0, 60.0))
    language = make_record("softmax", seed=1).model_copy(
        update={"metric": metrics.find("perplexity").metric}
    )
    final = language.final.model_copy(update={"score": math.exp(2), "dev": 9.0, "sample": sample})
    failed = make_record("none", status="failed", reason="no GPU", measured=False)
    for run in (recall, language.model_copy(update={"final": final}), failed):
        Store(tmp_path).write(run)
    return harness.load(tmp_path).set_index("attention", drop=False)


def test_the_columns_are_the_documented_ones(frame):
    assert sorted(frame.columns) == sorted(COLUMNS.split())


def test_a_row_has_the_values_of_its_record(frame):
    row = frame.loc["primal"]
    assert (row["row"], row.suite, row.question) == ("primal[rank=8]", "laptop@1", "recall")
    assert (row.metric, row.unit, row.better, row.chance) == ("accuracy", "%", "higher", 10.0)
    assert (row.score, row.dev, row["time_ratio"]) == (60.0, 61.0, 0.5)
    # Wilson's interval of 60 of 100 is 50.2 to 69.1.
    assert (row.low, row.high) == pytest.approx((50.2, 69.1), abs=0.3)
    assert row["train.optimiser"] == "adamw" and row["primal.rank"] == 8
    assert row["sample"].count == 100 and not row.baseline


def test_an_interval_is_in_the_unit_of_the_metric(frame):
    row = frame.loc["softmax"]
    assert (row.metric, row.unit, row.better) == ("perplexity", "", "lower")
    # Both clusters have the mean 2: the interval has no width.
    assert (row.low, row.score, row.high) == pytest.approx((math.exp(2),) * 3)


def test_a_run_that_failed_has_its_reason_and_no_score(frame):
    row = frame.loc["none"]
    assert (row.status, row.reason, row.baseline) == ("failed", "no GPU", True)
    assert row[["score", "low", "time_ratio"]].isna().all() and row.parameters == 123_456


def test_a_row_of_costs_has_the_values_of_its_record(tmp_path):
    CostStore.within(tmp_path).write(make_cost("linear", 256, seconds=2.0, ratio=4.0))
    (row,) = (frame := costs(tmp_path)).to_dict("records")
    assert sorted(frame.columns) == sorted(COSTS.split())
    assert (row["pass"], row["length"], row["linear"]) == ("train", 256, True)
    assert (row["seconds"], row["ratio"], row["ratio.q3"]) == (2.0, 4.0, 4.8)
    assert (row["memory"], row["memory_ratio"], row["over_limit"]) == (2**17, 0.5, 20.0)
