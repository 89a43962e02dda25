"""Boards of control: normalised returns, their intervals, order and baselines."""

import csv
import io

import numpy as np
import pytest
from harness.records.returns import EpisodeReturns
from pydantic import ValidationError

from harness.records.outcome import Final
from harness.records.record import Record
from reports.pages.leaderboard import leaderboard
from reports.tables import as_csv, boards
from reports.tables.terminal import summary
from tests.reports.conftest import make_record

EPISODES = 12


def control(attention: str, seed: int, returns, **fields) -> Record:
    """A record of those returns, of which -20 is random and 180 an expert's."""
    record = make_record(attention, seed=seed, task="control", **fields).model_dump()
    own = EpisodeReturns(returns=tuple(returns), random=-20.0, expert=180.0)
    for name in ("test_accuracy", "dev_accuracy"):
        del record["final"][name]
    record["final"] |= {"returns": own.model_dump(), "test_examples": EPISODES, "dev_loss": 0.3}
    baselines = {"random policy": -0.04, "trajectories of the file": 40.0}
    return Record.model_validate({**record, "baselines": {}, "baseline_returns": baselines})


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
    assert best.mean == pytest.approx(np.mean([r.final.returns.score for r in records[3:6]]))
    assert best.low < best.mean < best.high < best.mean + 3 and best.over == "seeds and examples"
    assert board.rows[0].standing.tiers == (1,) and board.rows[0].accuracy is None
    assert "strongest: trajectories of the file, normalised return 40.0" in board.verdict


def test_no_table_has_an_accuracy(records):
    for text in (summary(records), leaderboard(records, [])):
        assert "accuracy (%)" not in text and "test %" not in text and "dev %" not in text
        assert " 70." in text or " 69." in text
        assert "-70." not in text and "0.0" in text and "-0.0" not in text
    lines = [*csv.DictReader(io.StringIO(as_csv(boards(records))))]
    ends = [float(lines[0][f"test_normalised_return{end}"]) for end in ("_low", "", "_high")]
    assert ends == sorted(ends) and ends[1] == pytest.approx(70, abs=1)
    assert lines[0]["interval_over"] == "seeds and examples"
    assert not any(line["test_accuracy_percent"] for line in lines)
    assert [line["attention"] for line in lines[3:]] == [
        "trajectories of the file",
        "random policy",
    ]
    assert "test_normalised_return" not in as_csv(boards([make_record()]))


def test_a_failed_run_is_shown_with_its_reason():
    failed = make_record("linear", task="control", status="failed", reason="no GPU", baselines={})
    assert "no GPU" in summary([failed])
    text = summary([failed, control("softmax", 0, [5.0] * EPISODES)])
    assert "no GPU" in text and "test %" not in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_accuracy": 0.5}, "no returns"),
        ({"dev_loss": None}, "dev_loss is given"),
        ({"test_examples": 3}, "3 episodes"),
        ({"returns": None, "dev_loss": None}, "no returns"),
    ],
)
def test_a_final_with_returns_must_be_consistent(change, message):
    final = control("softmax", 0, [1.0] * EPISODES).final.model_dump()
    with pytest.raises(ValidationError, match=message):
        Final.model_validate({**final, **change})
