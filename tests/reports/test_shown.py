"""The runs that tables show: their questions, rows and results."""

from itertools import islice, permutations

import pytest

from harness.records import frame
from harness.records.record import Record
from reports.leaderboard import selected_of
from reports.shown import failures, questions
from reports.text import left_out_text
from tests.reports.conftest import make_record

RATES = (3e-4, 1e-3, 3e-3)


def of_records(records):
    return selected_of(questions(frame.of_records(records)))


def rows(records):
    """The labels of the rows."""
    return sorted({*of_records(records)["row"]})


def titles(records):
    return [*dict.fromkeys(of_records(records)["question"])]


def tuned(attention="softmax", lr=1e-3, role="trial", rates=RATES, **fields) -> Record:
    """A run of a grid of learning rates; the rate of its recipe is 1e-3."""
    return make_record(attention, train={"lr": lr}, role=role, rates=rates, **fields)


def matched(attention="softmax", width=128, **fields) -> Record:
    """A run of a model whose feed-forward width makes it as large as softmax."""
    return make_record(attention, model={"feed_forward": width}, match="parameters", **fields)


def test_runs_are_in_order_of_seed_and_the_later_of_two_records_of_a_run_is_used():
    early = make_record(accuracy=0.1, started="2026-01-01T00:00:00Z")
    late = make_record(accuracy=0.7, started="2026-02-01T00:00:00Z")
    for order in permutations([early, late, make_record(seed=2), make_record(seed=1)]):
        found = of_records(order)
        assert found["seed"].tolist() == [0, 1, 2] and found["row"].nunique() == 1
        assert found["score"].tolist() == [70, 50, 50]


@pytest.mark.parametrize(("change", "count"), [
    ({"key": "listops@1[max_len=9]"}, 2), ({"budget": "laptop"}, 2), ({"device": "cpu"}, 2),
    ({"machine": "NVIDIA H200"}, 2), ({"overrides": {"train.lr": 0.1}}, 2),
    ({"overrides": {"primal.rank": 8}}, 1), ({"threads": 4}, 1),
    ({"train": {"precision": "fp32"}}, 2), ({"role": "final"}, 2),
], ids=str)  # fmt: skip
def test_runs_of_other_tasks_recipes_and_processors_are_other_questions(change, count):
    assert len(titles([make_record("softmax"), make_record("primal", **change)])) == count


def test_other_grids_are_other_questions_and_equal_titles_name_the_identity():
    two = [make_record(), make_record(train={"clip": 2.0})]
    named = {run.spec.question.id in title for run, title in zip(two, titles(two), strict=True)}
    assert len(named) == 1
    grids = [tuned(role="final"), tuned("primal", rates=RATES[1:], role="final")]
    assert len({*titles(two)}) == len({*titles(grids)}) == 2


RANKS = [{"primal.rank": rank} for rank in (20, 30)]


def test_a_title_names_threads_overrides_and_what_is_matched():
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


@pytest.mark.parametrize(
    ("records", "labels"),
    [
        ([make_record("primal", overrides=options) for options in RANKS],
         ["primal[rank=20]", "primal[rank=30]"]),
        ([make_record("softmax+primal", overrides=options, options={"softmax": {}, "primal": {}})
          for options in RANKS],
         ["softmax+primal[primal.rank=20]", "softmax+primal[primal.rank=30]"]),
        ([tuned(lr=3e-4, role="final"), tuned("primal", role="final")],
         ["primal [lr=0.001]", "softmax [lr=0.0003]"]),
        ([matched(), matched("primal", 96)],
         ["primal [feed_forward=96]", "softmax [feed_forward=128]"]),
    ],
)  # fmt: skip
def test_a_row_is_named_by_its_options_and_what_was_chosen_for_it(records, labels):
    assert rows(records) == labels and len(titles(records)) == 1


def test_of_trials_the_best_is_a_result_once_all_have_ended_without_a_final_run():
    final = tuned("softmax", 3e-4, "final", seed=1)
    failed = [tuned("primal", rate, status="diverged") for rate in RATES]
    chosen = "softmax [lr=0.0003]"
    assert rows([final, *(tuned(lr=rate) for rate in RATES)]) == [chosen]
    assert rows([final, *failed]) == ["primal", chosen]
    # While a trial is missing, it may be better.
    assert rows([final, *failed[1:]]) == rows([final, tuned("primal", RATES[0])]) == [chosen]
    best = of_records([final, *failed[1:], tuned("primal", RATES[0])])
    assert best[best["row"] == "primal"][["status", "train.lr"]].values.tolist() == [
        ["ok", RATES[0]]
    ]


def test_runs_of_an_older_version_of_a_task_or_other_code_are_left_out_and_counted():
    old = [make_record(key="text@9[max_len=512]", task="text", seed=n) for n in (0, 1)]
    new = [make_record("linear", key="text@10[max_len=512]", task="text"), make_record("primal")]
    other = make_record("primal", seed=1, version="0.0", started="2020-01-01T00:00:00Z")
    # One in eleven of the 120 orders: each record is first, and last, in some.
    for records in islice(permutations([*old, *new, other]), 0, None, 11):
        assert rows(records) == ["linear", "primal"] and len(of_records(records)) == 2
    reasons = questions(frame.of_records([*old, *new, other]))["left_out"]
    text = "Left out of the runs: 1 of other code of the row, 2 of an older version of the task."
    assert sorted(left_out_text(reasons).split()) == sorted(text.split())
    assert rows(old) == ["softmax"]
    assert left_out_text(questions(frame.of_records(old))["left_out"]) == ""


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
