import pytest

from reports.rows import boards


def labels(board):
    return [row.label for row in board.rows]


def test_runs_that_differ_by_seed_only_are_one_row(record):
    (board,) = boards(record(seed=seed, accuracy=0.4 + 0.1 * seed) for seed in (2, 0, 1))
    (row,) = board.rows
    assert [run.spec.seed for run in row.runs] == [0, 1, 2]
    assert row.accuracy.mean == pytest.approx(0.5)


def test_the_same_run_given_twice_counts_once_and_the_later_wins(record):
    early = record(accuracy=0.1, started="2026-01-01T00:00:00Z")
    late = record(accuracy=0.7, started="2026-02-01T00:00:00Z")
    (board,) = boards([late, early])
    assert board.rows[0].runs == (late,)


@pytest.mark.parametrize(
    "change",
    [
        {"key": "listops@2"},
        {"key": "listops@1[max_len=512]"},
        {"budget": "laptop"},
        {"device": "cpu"},
        {"machine": "NVIDIA H200"},
        {"train": {"steps": 4999}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_versions_options_budgets_machines_and_recipes_never_share_a_board(record, change):
    assert len(boards([record("softmax"), record("primal", **change)])) == 2


def test_threads_of_a_processor_part_boards_and_those_beside_a_gpu_do_not(record):
    def count(device):
        return len(boards(record(seed=n, device=device, threads=n + 1) for n in range(2)))

    assert (count("cpu"), count("cuda")) == (2, 1)


def test_two_option_sets_are_two_rows_told_apart_by_what_differs(record):
    sets = [{"primal": {"rank": rank, "eta": 0.1}} for rank in (20, 30)]
    (board,) = boards(record("primal", options=options) for options in sets)
    assert labels(board) == ["primal (rank=20)", "primal (rank=30)"]


def test_options_of_a_composition_name_their_variant(record):
    sets = [{"softmax": {}, "primal": {"rank": rank}} for rank in (20, 30)]
    (board,) = boards(record("softmax+primal", options=options) for options in sets)
    assert labels(board) == ["softmax+primal (primal.rank=20)", "softmax+primal (primal.rank=30)"]


def test_rows_stand_by_accuracy_with_those_that_have_none_last(record):
    given = [
        record("a", status="failed", reason="ValueError"),
        record("low", accuracy=0.2),
        record("high", accuracy=0.6),
    ]
    assert labels(boards(given)[0]) == ["high", "low", "a"]


def test_floors_stand_from_high_to_low_and_once_each(record):
    (board,) = boards(record(seed=seed) for seed in range(3))
    assert board.baselines == (("majority", 0.17), ("chance", 0.1))


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        ("diverged", "loss is nan at step 300", "diverged: loss is nan at step 300"),
        ("out_of_memory", "", "out of memory at step 300"),
        ("out_of_memory", "CUDA out of memory", "CUDA out of memory"),
        ("interrupted", "", "interrupted at step 300"),
        ("interrupted", "at step 17", "interrupted at step 17"),
        ("failed", "ValueError: no", "failed: ValueError: no"),
    ],
)
def test_a_failure_says_how_the_run_ended(record, status, reason, expected):
    (board,) = boards([record(status=status, reason=reason)])
    row = board.rows[0]
    assert (row.accuracy, row.status, row.failures) == (None, status, expected)


def test_a_partial_row_averages_what_finished_and_names_the_seeds_that_did_not(record):
    given = [record(seed=n, accuracy=0.4 + 0.1 * n) for n in range(2)]
    given += [record(seed=n, status="diverged", reason="loss is nan") for n in (2, 3)]
    row = boards(given)[0].rows[0]
    assert row.accuracy.mean == pytest.approx(0.45)
    assert (row.status, row.failures) == ("partial", "seed 2, 3 diverged: loss is nan")


def test_a_ratio_is_that_of_the_seeds_that_have_one(record):
    alone = record("primal", seed=1, softmax=None, mib=900.0)
    (board,) = boards([record("primal", seed=0), alone])
    (row,) = board.rows
    assert row.cost.time_ratio.median == 0.5 and row.cost.memory_ratio == 0.75
    assert row.cost.inference_ratio.median == 0.25
    ((row,),) = (board.rows for board in boards([alone]))
    assert row.cost.own.peak_bytes == 900 * 2**20 and row.cost.memory_ratio is None


def test_a_cost_is_the_median_over_seeds_with_its_quartiles(record):
    given = [record(seed=n, seconds=s, mib=s) for n, s in enumerate((10.0, 20.0, 90.0))]
    cost = boards(given)[0].rows[0].cost
    time = cost.own.seconds_per_1k_steps
    assert (time.q1, time.median, time.q3) == pytest.approx((18.0, 20.0, 24.0))
    assert cost.memory_ratio == pytest.approx(20 / 400)
    assert cost.time_ratio.median == pytest.approx(20 / 200)


def test_where_records_disagree_on_a_floor_the_latest_is_right(record):
    early = record(baselines={"chance": 0.1}, started="2026-01-01T00:00:00Z")
    late = record(seed=1, baselines={"chance": 0.2}, started="2026-02-01T00:00:00Z")
    for given in ([early, late], [late, early]):
        assert boards(given)[0].baselines == (("chance", 0.2),)


def test_rows_stand_by_test_accuracy_whatever_dev_says(record):
    given = [record("softmax", accuracy=0.5), record("primal", accuracy=0.4)]
    given[1] = given[1].model_copy(
        update={"final": given[1].final.model_copy(update={"dev_accuracy": 0.9})}
    )
    assert labels(boards(given)[0]) == ["softmax", "primal"]
