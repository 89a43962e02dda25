"""Boards of control: normalised returns, their intervals, order and baselines."""

import csv
import io

import numpy as np
import pytest

from harness.records.answers import ClusterValues
from harness.records.record import Record
from reports.pages.leaderboard import leaderboard
from reports.tables import as_csv, boards
from reports.tables.terminal import summary
from tasks import metrics
from tests.reports.conftest import make_record

EPISODES = 12


def control(attention: str, seed: int, returns, **fields) -> Record:
    """A record of those returns, of which -20 is random and 180 an expert's."""
    record = make_record(attention, seed=seed, task="control", **fields)
    sample = ClusterValues(sizes=(1,) * EPISODES, sums=tuple((one + 20) / 2 for one in returns))
    score = {"score": sample.mean, "sample": sample, "test_examples": EPISODES, "dev": 0.3}
    return record.model_copy(
        update={
            "final": record.final.model_copy(update=score),
            "metric": metrics.find("normalised-return").metric,
            "dev_metric": metrics.find("squared-error").metric,
            "baselines": {"random policy": -0.04, "trajectories of the file": 40.0},
        }
    )


@pytest.fixture
def records():
    rng = np.random.default_rng(0)
    levels = {"softmax": 20.0, "primal": 120.0, "none": 10.0}
    return [
        control(name, seed, level + rng.normal(0, 3, EPISODES))
        for name, level in levels.items()
        for seed in range(3)
    ]


def test_the_highest_return_is_first_with_an_interval_over_seeds_and_episodes(records):
    (board,) = boards(records)
    assert [row.label for row in board.rows] == ["primal", "softmax", "none"]
    assert [row.standing.beats_baselines for row in board.rows] == [True, False, None]
    best = board.rows[0].score
    assert best.mean == pytest.approx(np.mean([run.final.score for run in records[3:6]]))
    assert best.low < best.mean < best.high < best.mean + 3 and best.over == "seeds and examples"
    assert board.rows[0].standing.tiers == (1,)
    assert "strongest: trajectories of the file, normalised return 40.0" in board.verdict


def test_every_table_has_the_returns_and_none_an_accuracy(records):
    for text in (summary(records), leaderboard(records, [])):
        assert "normalised return" in text and "accuracy, %" not in text
        assert " 70." in text or " 69." in text
        assert "-70." not in text and "0.0" in text and "-0.0" not in text
    assert "dev squared error" in leaderboard(records, [])
    lines = [*csv.DictReader(io.StringIO(as_csv(boards(records))))]
    ends = [float(lines[0][f"test{end}"]) for end in ("_low", "", "_high")]
    assert ends == sorted(ends) and ends[1] == pytest.approx(70, abs=1)
    assert lines[0]["interval_over"] == "seeds and examples"
    assert [line["attention"] for line in lines[3:]] == [
        "trajectories of the file",
        "random policy",
    ]


def test_a_failed_run_is_shown_with_its_reason():
    failed = make_record("linear", task="control", status="failed", reason="no GPU", baselines={})
    assert "no GPU" in summary([failed])
    assert "no GPU" in summary([failed, control("softmax", 0, [5.0] * EPISODES)])
