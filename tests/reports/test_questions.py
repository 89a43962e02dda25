"""Runs of one question and row, and the names of both."""

from itertools import permutations

import pytest

from harness.records import frame
from harness.records.models import Encoder
from harness.records.record import Record
from harness.records.spec import TrainSpec
from reports.questions import failures, left_out, questions
from tests.reports.conftest import make_record

RATES = (3e-4, 1e-3, 3e-3)


def of_records(records, **how):
    return questions(frame.of_records(records), **how)


def rows(records, **how):
    """The labels of the rows."""
    return sorted({*of_records(records, **how)["row"]})


def titles(records):
    return [*dict.fromkeys(of_records(records)["question"])]


def tuned(attention="softmax", lr=1e-3, role="trial", rates=RATES, **fields) -> Record:
    """A run of a grid of learning rates; the rate of its recipe is 1e-3."""
    return make_record(attention, train={"lr": lr}, role=role, rates=rates, **fields)


def matched(attention="softmax", width=128, **fields) -> Record:
    """A run of a model whose feed-forward width makes it as large as softmax."""
    return make_record(attention, model={"feed_forward": width}, match="parameters", **fields)


def test_runs_that_differ_by_seed_only_are_one_row_in_order_of_seed():
    for seeds in permutations(range(3)):
        found = of_records(make_record(seed=seed) for seed in seeds)
        assert found["seed"].tolist() == [0, 1, 2] and found["row"].nunique() == 1


def test_the_later_of_two_records_of_a_run_is_used():
    early = make_record(accuracy=0.1, started="2026-01-01T00:00:00Z")
    late = make_record(accuracy=0.7, started="2026-02-01T00:00:00Z")
    for order in ([early, late], [late, early]):
        assert of_records(order)["score"].tolist() == [70]


def other(value):
    """A value of the same kind that is not `value`."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value / 2 if 0 < value < 1 else int(value) + 1
        case tuple():
            return tuple(map(other, value))
    return {
        "learned": "rotary", "none": "layer", "pre": "post", "mean": "flatten",
        "adamw": "radam", "bf16": "fp32", "one-cycle": "constant", "all": "matrices",
    }[value]  # fmt: skip


FIELDS = [f"model.{n}" for n in Encoder.model_fields if n != "kind"] + [
    f"train.{n}" for n in TrainSpec.model_fields if n != "augment"
]


@pytest.mark.slow_after(6)
@pytest.mark.parametrize("path", FIELDS)
def test_questions_that_differ_by_any_field_differ_in_title_and_recipe(path):
    part, name = path.split(".")
    value = {"dropout": 0.5, "attention_dropout": 0.5, "label_smoothing": 0.5}.get(name)
    value = value or other(getattr(getattr(make_record().spec, part), name))
    # A constant schedule needs both.
    shared = {"warmup": 0, "cycle_momentum": False} if name == "schedule" else {}
    two = [make_record(train=shared), make_record(**{part: {**shared, name: value}})]
    assert of_records(two)["setting"].nunique() == len(titles(two)) == 2
    assert all(
        run.spec.question.id in title
        for run, title in zip(
            two,
            sorted(titles(two), key=lambda title: two[0].spec.question.id not in title),
            strict=True,
        )
    )


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({"key": "listops@1[max_len=9]"}, 2),
        ({"budget": "laptop"}, 2),
        ({"device": "cpu"}, 2),
        ({"machine": "NVIDIA H200"}, 2),
        ({"overrides": {"train.lr": 0.1}}, 2),
        ({"overrides": {"primal.rank": 8}}, 1),
        ({"threads": 4}, 1),
        ({"train": {"precision": "fp32"}}, 2),
    ],
    ids=str,
)
def test_runs_of_other_tasks_recipes_and_processors_are_other_questions(change, count):
    assert len(titles([make_record("softmax"), make_record("primal", **change)])) == count


def test_a_title_names_threads_overrides_and_other_fields_that_differ():
    changed = {"overrides": {"train.lr": 0.0003, "model.dim": 128}, "budget": "laptop"}
    records = [
        make_record(**changed, device="cpu", threads=1),
        make_record("primal", **changed, device="cpu"), make_record(task="text"), matched(),
    ]  # fmt: skip
    machine = "cuda: NVIDIA H100"
    assert titles(records) == [
        "listops@1, recipe laptop with model.dim=128, train.lr=0.0003, cpu: NVIDIA H100, 1 or 2 "
        "threads",
        f"listops@1, recipe paper, parameters matched, {machine}",
        f"text@1, recipe paper, {machine}",
    ]


RANKS = [{"primal": {"rank": rank, "eta": 0.1}} for rank in (20, 30)]


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    ("records", "labels"),
    [
        ([make_record("primal", options=options) for options in RANKS],
         ["primal[rank=20]", "primal[rank=30]"]),
        ([make_record("softmax+primal", options={"softmax": {}, **options}) for options in RANKS],
         ["softmax+primal[primal.rank=20]", "softmax+primal[primal.rank=30]"]),
        ([make_record("primal", options=RANKS[0], overrides={"primal.rank": 20, "train.lr": 1})],
         ["primal[rank=20]"]),
        ([tuned(lr=3e-4, role="final"), tuned("primal", role="final")],
         ["primal [lr=0.001]", "softmax [lr=0.0003]"]),
        ([matched(), matched("primal", 96)],
         ["primal [feed_forward=96]", "softmax [feed_forward=128]"]),
    ],
)  # fmt: skip
def test_a_row_is_named_by_its_options_and_what_was_chosen_for_it(records, labels):
    assert rows(records) == labels and len(titles(records)) == 1


def test_trials_are_no_results_unless_all_those_of_a_row_failed():
    final = tuned("softmax", 3e-4, "final", seed=1)
    failed = [tuned("primal", rate, status="diverged") for rate in RATES]
    assert rows([final, *(tuned(lr=rate) for rate in RATES)]) == ["softmax [lr=0.0003]"]
    assert rows([final, *failed]) == ["primal", "softmax [lr=0.0003]"]
    # While a trial is missing, it may still finish.
    assert rows([final, *failed[1:]]) == ["softmax [lr=0.0003]"]
    assert rows([final, *failed[1:], tuned("primal", RATES[0])]) == ["softmax [lr=0.0003]"]
    assert rows([final, *failed], trials=True) == ["primal"]


@pytest.mark.parametrize(
    "record", [make_record("primal"), tuned("primal", rates=RATES[1:], role="final")]
)
def test_other_grids_and_runs_without_tuning_are_other_questions(record):
    assert len(titles([tuned(role="final"), record])) == 2


def test_runs_of_an_older_version_of_a_task_are_left_out_and_counted():
    old = [make_record(key="text@9[max_len=512]", task="text", seed=n) for n in (0, 1)]
    new = [make_record("linear", key="text@10[max_len=512]", task="text"), make_record("primal")]
    for records in ([*old, *new], [*new, *old]):
        assert rows(records) == ["linear", "primal"]
        assert left_out(frame.of_records(records)).endswith(": 2 of text@9.")
    assert rows(old) == ["softmax"]
    assert left_out(frame.of_records(old)) == left_out(frame.of_records(new)) == ""


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        ([("diverged", "loss is nan at step 300")], "diverged: loss is nan at step 300"),
        ([("out_of_memory", "")], "out of memory at step 300"),
        ([("out_of_memory", "CUDA out of memory")], "CUDA out of memory"),
        ([("interrupted", "")], "interrupted at step 300"),
        ([("failed", "ValueError: no\nline two")], "failed: ValueError: no line two"),
        ([("ok", ""), ("diverged", "loss is nan"), ("diverged", "loss is nan")],
         "seed 1, 2 diverged: loss is nan"),
        ([("diverged", "a"), ("diverged", "b")], "seed 0 diverged: a; seed 1 diverged: b"),
        ([("ok", "")], ""),
    ],
)  # fmt: skip
def test_failures_name_how_the_runs_ended(runs, text):
    records = [make_record(seed=n, status=s, reason=why) for n, (s, why) in enumerate(runs)]
    assert failures(of_records(records)) == text
