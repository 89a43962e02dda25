"""The progress of runs on simulated curves."""

import math

import numpy as np
import pandas as pd
import pytest

from reports.progress import NO_PROGRESS, progress, rise_of, steps_to

BUDGET = 1800
STEPS = np.arange(100, BUDGET + 1, 100)


def curve(kind: str, seed: int = 0) -> np.ndarray:
    """The accuracy on dev of 400 examples of several answers, in percent."""
    shape = {
        "solved": 100 / (1 + np.exp(-(STEPS - 300) / 40)),
        "late": 100 / (1 + np.exp(-(STEPS - 1500) / 150)),
        "rising": 5 + 20 * STEPS / BUDGET,
        "plateau": 13 * (1 - np.exp(-STEPS / 150)),
        "chance": np.full(len(STEPS), 0.8),
    }[kind]
    p = np.clip(shape / 100, 0, 1)
    return 100 * np.random.default_rng(seed).binomial(6000, p) / 6000


def frame(*runs: tuple[str, str, int, bool]) -> pd.DataFrame:
    """Runs: the row, the kind of curve, the seed, and whether the run is a final one."""
    return pd.DataFrame([
        {
            "question": "recall", "row": row, "role": "final" if final else "trial", "unit": "%",
            "train.steps": BUDGET, "dev_better": "higher", "status": "ok", "point": "1",
            "grid": '{"train.lr": [1]}',
            "evaluations": [*zip(STEPS.tolist(), curve(kind, seed).tolist(), strict=True)],
        }
        for row, kind, seed, final in runs
    ])  # fmt: skip


CEILINGS = {"recall": 99.0}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("kinds", "reached", "rising"), [
    (["solved", "solved"], 2, False), (["late", "late"], 0, True), (["rising", "rising"], 0, True),
    (["plateau", "plateau"], 0, False), (["chance", "chance"], 0, False),
    (["solved", "rising"], 1, True), (["solved", "chance"], 1, False),
], ids=str)  # fmt: skip
def test_seeds_at_the_ceiling_are_counted_and_a_rise_is_seen(kinds, reached, rising, seed):
    runs = [("mine", "chance", 99, False)]
    runs += [("mine", kind, 10 * seed + n, True) for n, kind in enumerate(kinds)]
    found = progress(frame(*runs), CEILINGS, {"recall": 2}).set_index("row").loc["mine"]
    assert (found["reached"], found["runs"], found["rising"]) == (reached, 2, rising)
    assert found["solved"] == (reached == 2) and math.isnan(found["steps"]) == (reached < 2)
    assert reached < 2 or 400 <= found["steps"] <= 800


def test_without_a_ceiling_an_accuracy_can_rise_and_another_score_cannot():
    runs = frame(("mine", "rising", 1, True))
    assert progress(runs, {})[["rising", "solved"]].values.tolist() == [[True, False]]
    assert not progress(runs.assign(unit="bits"), {})["rising"].item()


@pytest.mark.parametrize(("points", "statuses", "part"), [
    (1, ["ok"], "trial, 1 seed"), (2, ["ok", "interrupted"], "1 of 2 trials"),
    (2, ["ok", "diverged"], "trial, 1 seed"), (2, ["diverged"] * 2, ""),
])  # fmt: skip
def test_a_part_of_trials_is_named_and_a_row_of_failed_trials_is_finished(points, statuses, part):
    runs = frame(*(("mine", "chance", seed, False) for seed in range(len(statuses))))
    grid = str({"train.lr": [*range(points)]}).replace("'", '"')
    runs = runs.assign(status=statuses, point=[*map(str, range(len(statuses)))], grid=grid)
    assert progress(runs, CEILINGS)["part"].item() == part


@pytest.mark.parametrize(("ended", "seeds", "part", "solved"), [
    (2, 2, "", True), (2, 3, "2 of 3 seeds", True), (1, 3, "1 of 3 seeds", False), (1, 1, "", True),
])  # fmt: skip
def test_an_entry_is_solved_by_two_seeds_or_by_all(ended, seeds, part, solved):
    runs = frame(*(("mine", "solved", seed, True) for seed in range(ended)))
    found = progress(runs, CEILINGS, {"recall": seeds})
    assert found[["part", "solved"]].values.tolist() == [[part, solved]]


@pytest.mark.parametrize(("scores", "expected"), [
    ([50, 99, 99.5], 200), ([99, 50, 99], 300), ([50, 60, 70], math.nan), ([99, 99, 50], 100),
])  # fmt: skip
def test_two_evaluations_in_a_row_or_the_last_reach_the_ceiling(scores, expected):
    found = steps_to([100, 200, 300], scores, 99.0)
    assert found == pytest.approx(expected, nan_ok=True)


def test_a_loss_that_falls_rises_and_few_points_tell_nothing():
    steps = [100, 200, 300, 400]
    assert rise_of(steps, [4, 3, 2, 1], 200, 0.0, sign=-1).rise == pytest.approx(2 * 1.5, rel=0.5)
    assert not rise_of(steps[:2], [1, 9], 200, 100.0).is_rising
    assert [*progress(pd.DataFrame(), {}).columns] == ["question", "row", *NO_PROGRESS]
