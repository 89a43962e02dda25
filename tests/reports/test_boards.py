from itertools import permutations

import pytest

from harness.records.spec import Encoder, TrainSpec
from reports.pages.leaderboard import leaderboard
from reports.tables import as_csv, boards, summary
from reports.tables.settings import PATHS, recipe
from reports.tables.versions import left_out


def labels(board):
    return [row.label for row in board.rows]


def test_runs_that_differ_by_seed_only_are_one_row(record):
    (board,) = boards(record(seed=seed, accuracy=0.4 + 0.1 * seed) for seed in (2, 0, 1))
    (row,) = board.rows
    assert [run.spec.seed for run in row.runs] == [0, 1, 2]
    assert row.score.mean == pytest.approx(50)


def test_the_later_of_two_records_of_a_run_is_used(record):
    early = record(accuracy=0.1, baselines={"chance": 0.1}, started="2026-01-01T00:00:00Z")
    late = record(accuracy=0.7, baselines={"chance": 0.2}, started="2026-02-01T00:00:00Z")
    for given in ([early, late], [late, early]):
        (board,) = boards(given)
        assert board.rows[0].runs == (late,)
        assert board.baselines == (("chance", 20.0),)


@pytest.mark.parametrize(
    "change",
    [
        {"key": "listops@1[max_len=9]"},
        {"budget": "laptop"},
        {"device": "cpu"},
        {"machine": "NVIDIA H200"},
        {"overrides": {"train.lr": 0.1}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_other_tasks_budgets_machines_and_overrides_make_other_boards(record, change):
    assert len(boards([record("softmax"), record("primal", **change)])) == 2


def test_one_run_on_two_machines_is_on_two_boards(record):
    two = boards(record(machine=name) for name in ("NVIDIA H100", "NVIDIA H200"))
    assert [board.machine for board in two] == ["NVIDIA H100", "NVIDIA H200"]


def test_runs_of_one_processor_share_a_board_whatever_their_threads(record):
    def board_of(device):
        (board,) = boards(record(seed=n, device=device, threads=n + 1) for n in range(2))
        return board

    assert [len(row.runs) for row in board_of("cpu").rows] == [2]
    assert board_of("cpu").machine == "NVIDIA H100, 1 or 2 threads"
    assert board_of("cuda").machine == "NVIDIA H100"


def test_rows_of_two_precisions_share_a_board_and_are_labelled_by_them(record):
    records = [record("softmax"), record("primal", train={"precision": "fp32"})]
    (board,) = boards(records)
    assert sorted(labels(board)) == ["primal [fp32]", "softmax [bf16]"]
    (alone,) = boards(records[:1])
    assert labels(alone) == ["softmax"] and alone.setting["train.precision"] == "bf16"
    (both,) = boards([record(), record(train={"precision": "fp32"})])
    assert sorted(labels(both)) == ["softmax [bf16]", "softmax [fp32]"]


@pytest.mark.parametrize(
    ("attention", "other", "expected"),
    [("primal", {}, "primal (rank=20)"),
     ("softmax+primal", {"softmax": {}}, "softmax+primal (primal.rank=20)")],
)  # fmt: skip
def test_a_label_names_the_options_that_differ(record, attention, other, expected):
    sets = [{**other, "primal": {"rank": rank, "eta": 0.1}} for rank in (20, 30)]
    (board,) = boards(record(attention, options=options) for options in sets)
    assert labels(board) == [expected, expected.replace("20", "30")]


@pytest.mark.parametrize(
    ("attention", "other", "expected"),
    [("primal", {}, "primal (rank=5)"), ("softmax+primal", {"softmax": {}},
     "softmax+primal (primal.rank=5)")],
)  # fmt: skip
def test_a_label_names_the_options_that_were_set_also_alone(record, attention, other, expected):
    options = {**other, "primal": {"rank": 5, "eta": 0.1}}
    overrides = {"primal.rank": 5, "train.lr": 0.1}
    (board,) = boards([record(attention, options=options, overrides=overrides)])
    assert labels(board) == [expected]
    assert "train.lr=0.1" in board.title and "rank" not in board.title
    recipe = record(attention, options={**other, "primal": {"rank": 20, "eta": 0.1}},
                    overrides={"train.lr": 0.1})  # fmt: skip
    (both,) = boards([recipe, record(attention, options=options, overrides=overrides)])
    assert sorted(labels(both)) == [expected.replace("5", "20"), expected]


def test_rows_are_in_order_of_test_accuracy_with_failures_last(record):
    given = [
        record("a", status="failed", reason="ValueError"),
        record("low", accuracy=0.2),
        record("high", accuracy=0.6),
    ]
    for order in permutations(given):
        assert labels(boards(order)[0]) == ["high", "low", "a"]


def test_baselines_are_in_order_of_accuracy_and_once_each(record):
    (board,) = boards(record(seed=seed) for seed in range(3))
    assert board.baselines == (("majority", 17.0), ("chance", 10.0))


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        ("diverged", "loss is nan at step 300", "diverged: loss is nan at step 300"),
        ("out_of_memory", "", "out of memory at step 300"),
        ("out_of_memory", "CUDA out of memory", "CUDA out of memory"),
        ("interrupted", "", "interrupted at step 300"),
        ("failed", "ValueError: no\nline two", "failed: ValueError: no line two"),
    ],
)
def test_a_failure_names_how_the_run_ended(record, status, reason, expected):
    (row,) = boards([record(status=status, reason=reason)])[0].rows
    assert (row.score, row.failures) == (None, expected)


def test_a_row_with_failures_averages_the_finished_runs_and_names_the_other_seeds(record):
    given = [record(seed=n, accuracy=0.4 + 0.1 * n) for n in range(2)]
    given += [record(seed=n, status="diverged", reason="loss is nan") for n in (2, 3)]
    (row,) = boards(given)[0].rows
    assert row.score.mean == pytest.approx(45)
    assert row.failures == "seed 2, 3 diverged: loss is nan"


def test_a_title_names_overrides_and_other_fields_that_differ(record):
    changed = {"overrides": {"train.lr": 0.0003, "model.dim": 128}, "budget": "laptop"}
    given = [record(**changed), record(task="text"), record(model={"positions": "rotary"}),
             record(train={"compiled": True, "steps": 7000})]  # fmt: skip
    machine = "cuda: NVIDIA H100"
    assert [board.title for board in boards(given)] == [
        f"listops@1, budget laptop with model.dim=128, train.lr=0.0003, {machine}",
        f"listops@1, budget paper, {machine}; positions learned, steps 7,000, compiled yes",
        f"listops@1, budget paper, {machine}; positions rotary, steps 5,000, compiled no",
        f"text@1, budget paper, {machine}",
    ]


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
        "adamw": "radam", "one-cycle": "constant", "all": "matrices",
    }[value]  # fmt: skip


FIELDS = [f"model.{n}" for n in Encoder.model_fields if n != "kind"] + [
    # Rows of one board may differ in precision.
    f"train.{n}"
    for n in TrainSpec.model_fields
    if n not in ("precision", "augment")
]


@pytest.mark.parametrize("path", FIELDS)
def test_boards_that_differ_by_any_field_differ_in_title_recipe_and_csv(record, path):
    part, name = path.split(".")
    value = {"dropout": 0.5, "attention_dropout": 0.5, "label_smoothing": 0.5}.get(name)
    spec = getattr(record().spec, part)
    value = value or other(getattr(spec, name))
    # A constant schedule needs both.
    shared = {"warmup": 0, "cycle_momentum": False} if name == "schedule" else {}
    two = boards([record(train=shared), record(**{part: {**shared, name: value}})])
    assert len({board.title for board in two}) == len({recipe(b.setting) for b in two}) == 2
    lines = as_csv(two).splitlines()[1:]
    assert len(set(lines)) == len(lines) == 6


def test_every_field_that_a_board_shares_has_a_path():
    shared = {"budget", "overrides", "device", "task.name", "task.key", "task.digests", *FIELDS}
    assert shared < {*PATHS}
    assert not {"attention", "options", "seed"} & {path.partition(".")[0] for path in PATHS}


def test_rows_of_an_older_version_of_a_task_are_left_out_and_counted(record):
    old = [record("softmax", key="text@1[max_len=512]", task="text", seed=n) for n in (0, 1)]
    new = [record("linear", key="text@2[max_len=512]", task="text"), record("primal")]
    for records in ([*old, *new], [*new, *old]):
        found = boards(records)
        assert sorted(board.spec.task.key for board in found) == [
            "listops@1",
            "text@2[max_len=512]",
        ]
        assert all(row.spec.attention != "softmax" for board in found for row in board.rows)
        assert left_out(records).endswith("newer version of the task: 2 of text@1.")
        assert left_out(records) in leaderboard(records, []).replace("\\", "")
        assert "2 of text@1" in summary(records)
    assert [board.spec.task.key for board in boards(old)] == ["text@1[max_len=512]"]
    assert left_out(old) == left_out(new) == "" and "Left out" not in leaderboard(new, [])


def test_ten_is_a_newer_version_than_nine(record):
    (board,) = boards([record(key="listops@9"), record(key="listops@10[seed=1]")])
    assert board.spec.task.key == "listops@10[seed=1]"
