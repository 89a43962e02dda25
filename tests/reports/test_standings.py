"""Tiers, baselines and the verdict of a board."""

import csv
import io

import numpy as np
import pytest

from harness.records.baselines import TaskBaselines, name_of_task, with_baselines
from reports.pages.leaderboard import leaderboard
from reports.tables import as_csv, boards, summary
from reports.tables.values import NO_EVIDENCE

EXAMPLES = 1000
BASELINES = {"bag of tokens": 0.6, "chance": 0.1}


@pytest.fixture
def runs(record):
    """Makes three runs of a variant whose accuracy is about the given one."""
    hard = np.random.default_rng(0).random(EXAMPLES)

    def make(attention, accuracy, seeds=3, **changes):
        return [
            record(
                attention, seed=seed, baselines=BASELINES, is_baseline=attention == "identity",
                correct=(hard + 0.01 * np.random.default_rng(seed).random(EXAMPLES) < accuracy)
                .tolist(), **changes,
            )
            for seed in range(seeds)
        ]  # fmt: skip

    return make


def standings(records):
    (board,) = boards(records)
    return {row.label: row.standing for row in board.rows}


def test_tiers_separate_rows_on_the_same_answers(runs):
    found = standings(runs("a", 0.8) + runs("b", 0.795) + runs("c", 0.7))
    assert [found[name].tiers for name in "abc"] == [(1,), (1,), (2,)]
    best = [found[name].best or 0.0 for name in "abc"]
    assert sum(best) == pytest.approx(1)
    assert 0.95 > best[0] > best[1] > 0.05 > best[2]


def test_a_row_beats_the_baselines_if_its_interval_is_above_all_of_them(runs):
    found = standings(runs("above", 0.8) + runs("near", 0.63) + runs("below", 0.3))
    assert [found[name].beats_baselines for name in ("above", "near", "below")] == [
        True, False, False
    ]  # fmt: skip
    assert [found[name].at_baseline for name in ("above", "near", "below")] == [0, 0, 3]


def test_a_model_without_attention_is_a_baseline_and_no_row_with_attention(runs):
    given = runs("a", 0.9) + runs("b", 0.803) + runs("identity", 0.8)
    found = standings(given)
    assert [found[name].beats_baselines for name in ("a", "b", "identity")] == [True, False, None]
    assert found["identity"].at_baseline is None
    (board,) = boards(given)
    assert "1 of 2 rows with attention beat every baseline (strongest: identity, 78.2 %)" in (
        board.verdict
    )


def test_rows_of_one_seed_or_without_answers_are_not_compared(runs, record):
    given = runs("a", 0.8) + runs("b", 0.7) + runs("single", 0.9, seeds=1)
    given += [record("old", seed=n, accuracy=0.9, baselines=BASELINES) for n in range(3)]
    (board,) = boards(given)
    assert board.verdict == (
        "1 of 1 pairs of rows are separable. Not compared, with no stored test answers: old. Not "
        "compared, with one seed: single. 4 of 4 rows with attention beat every baseline "
        "(strongest: bag of tokens, 60.0 %)."
    )
    found = standings(given)
    assert found["single"].tiers == found["old"].tiers == ()


def test_rows_of_other_test_splits_are_not_compared(runs, record):
    given = runs("a", 0.8) + runs("b", 0.7)
    other = [True, True, True, False] * 50
    given += [record("c", seed=n, correct=other, baselines=BASELINES) for n in range(2)]
    (board,) = boards(given)
    assert "1 of 1 pairs" in board.verdict
    assert "Not compared, with answers to other test examples: c." in board.verdict


def test_of_three_seeds_none_may_be_at_a_baseline_where_rows_are_compared(runs):
    failed = runs("failed", 0.8)[:2] + runs("failed", 0.6)[2:]
    (board,) = boards(runs("a", 0.8) + runs("b", 0.7) + failed)
    found = {row.label: row.standing for row in board.rows}
    assert found["failed"].tiers == () and found["failed"].not_compared == "seeds at a baseline"
    assert found["a"].tiers == (1,) and found["b"].tiers == (2,)
    assert "1 of 1 pairs" in board.verdict and "seeds at a baseline: failed." in board.verdict


def test_of_five_seeds_one_may_be_at_a_baseline_and_not_all(runs):
    part = runs("part", 0.8, seeds=5)[:4] + runs("part", 0.6, seeds=5)[4:]
    found = standings(runs("a", 0.9, seeds=5) + part + runs("whole", 0.6, seeds=5))
    assert found["a"].tiers and found["part"].tiers and not found["whole"].tiers


def test_a_row_with_attention_at_the_level_of_a_model_without_is_not_compared(runs):
    given = runs("a", 0.9) + runs("b", 0.85) + runs("c", 0.7) + runs("identity", 0.7)
    found = standings(given)
    assert found["c"].not_compared == "seeds at a baseline"
    assert all(found[name].tiers for name in ("a", "b", "identity"))


def test_rows_without_a_baseline_are_not_compared(record):
    rows = [
        record(n, seed=s, correct=[True] * 9 + [False], baselines={})
        for n in "ab"
        for s in range(3)
    ]
    (board,) = boards(rows)
    assert {row.standing.not_compared for row in board.rows} == {"no baseline"}


def test_a_board_of_single_seeds_compares_no_pair(runs):
    (board,) = boards(runs("a", 0.8, seeds=1) + runs("b", 0.7, seeds=1))
    assert board.verdict.startswith("No pair of rows is compared, as rows have one seed. 2 of 2")


def test_a_board_on_which_no_row_beats_every_baseline_says_so_first(runs):
    page = leaderboard(runs("a", 0.5) + runs("b", 0.3), [])
    line = page.split("\n## ")[1].splitlines()[2]
    assert line == (
        "1 of 1 pairs of rows are separable. No row beats every baseline (strongest: bag of "
        "tokens, 60.0 %): the board is no evidence of attention, and shows only which row learns "
        "faster under this recipe."
    )
    (row,) = (line for line in page.splitlines() if line.startswith("| b |"))
    assert "]∅ | 2 | 0 | 3 of 3 |" in row
    assert "∅ No evidence of attention" in page and "*tier*" in page


def test_tables_show_standings_only_where_there_are_any(runs, record):
    compared, single = runs("a", 0.8) + runs("b", 0.7), [record("a"), record("b")]
    head = "| attention | test accuracy, % [95 % interval] | tier | best (%) | dev accuracy"
    assert head in leaderboard(compared, [])
    assert "| tier |" not in leaderboard(single, []) and " tier " not in summary(single)
    lines = summary(compared).splitlines()
    assert lines[1].startswith("1 of 1 pairs of rows are separable.")
    assert lines[3].split()[:4] == ["attention", "test", "tier", "best"]
    assert max(map(len, lines)) <= 100


def test_csv_holds_the_standings(runs):
    lines = csv.DictReader(io.StringIO(as_csv(boards(runs("a", 0.8) + runs("b", 0.3)))))
    names = ("tier", "beats_baselines", "runs_at_baseline")
    found = {line["attention"]: [line[name] for name in names] for line in lines}
    assert found == {"a": ["1", "True", "0"], "b": ["2", "False", "3"]} | {
        name: ["", "", ""] for name in BASELINES
    }


def test_without_baselines_there_is_no_verdict_on_them_but_the_missing_file(record):
    records = [
        record(name, seed=n, accuracy=a, baselines={}, is_baseline=name == "none")
        for n in range(3)
        for name, a in (("softmax", 0.9), ("none", 0.2))
    ]
    (board,) = boards(records)
    assert f"baselines/{name_of_task(records[0].spec.task)}.json is missing" in board.verdict
    assert "beat" not in board.verdict
    assert {row.standing.beats_baselines for row in board.rows} == {None}
    assert NO_EVIDENCE not in leaderboard(records, []).split("## What the numbers mean")[0]
    held = [record(seed=n, accuracy=0.9, baselines=BASELINES) for n in range(3)]
    assert boards(with_baselines(held, [], 1))[0].baselines == ()


def test_all_rows_of_a_task_share_the_baselines_of_its_file(record):
    rows = [record(seed=n, accuracy=0.9, baselines={"old": 0.95}) for n in range(3)]
    environment = rows[0].environment
    file = TaskBaselines(
        spec=rows[0].spec.task, version=4, metric=rows[0].metric, scores={"new": 50.0},
        left=(), started="2026-11-21T08:00:00Z", environment=environment,
    )  # fmt: skip
    assert boards(with_baselines(rows, [file], 4))[0].baselines == (("new", 50.0),)
    for other in (file.model_copy(update={"left": ("b",)}), file.model_copy(update={"version": 3})):
        assert boards(with_baselines(rows, [other], 4))[0].baselines == ()
