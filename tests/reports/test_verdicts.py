"""Verdicts on simulated curves: able, unable, undecided."""

import math

import numpy as np
import pandas as pd
import pytest

from reports.verdicts import (
    ABLE,
    MISSING,
    NO_VERDICT,
    UNABLE,
    UNDECIDED,
    Rise,
    is_unable_possible,
    rise_of,
    steps_to,
    verdicts,
    words,
)

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
        "stops with the rate": 40 * (1 - np.exp(-STEPS / 700)),
        "nearly": np.full(len(STEPS), 97.5),
    }[kind]
    p = np.clip(shape / 100, 0, 1)
    return 100 * np.random.default_rng(seed).binomial(6000, p) / 6000


def frame(*runs: tuple[str, str, int, bool]) -> pd.DataFrame:
    """Runs: the row, the kind of curve, the seed, and whether the run is a final one."""
    return pd.DataFrame([
        {
            "question": "recall", "row": row, "role": "final" if final else "trial",
            "train.steps": BUDGET, "dev_better": "higher", "status": "ok", "point": "1",
            "grid": '{"train.lr": [1]}',
            "evaluations": [*zip(STEPS.tolist(), curve(kind, seed).tolist(), strict=True)],
        }
        for row, kind, seed, final in runs
    ])  # fmt: skip


CEILINGS = {"recall": 99.0}

SOLVER = [("softmax", "solved", 0, False), ("softmax", "solved", 1, True)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("kinds", "expected"), [
    (["solved", "solved"], ABLE), (["late", "late"], UNDECIDED), (["rising", "rising"], UNDECIDED),
    (["plateau", "plateau"], UNABLE), (["chance", "chance"], UNABLE),
    (["chance", "rising"], UNDECIDED), (["solved", "chance"], UNDECIDED),
    (["stops with the rate", "stops with the rate"], UNDECIDED), (["nearly", "nearly"], UNDECIDED),
], ids=str)  # fmt: skip
def test_a_row_is_judged_by_all_of_its_curves(kinds, expected, seed):
    runs = [("mine", kind, 10 * seed + n, n > 0) for n, kind in enumerate([kinds[0], *kinds])]
    found = verdicts(frame(*SOLVER, *runs), CEILINGS).set_index("row")
    assert found.loc["mine", "verdict"] == expected
    assert math.isnan(found.loc["mine", "steps"]) == (expected != ABLE)
    assert found.loc["softmax", "verdict"] == ABLE and 400 <= found.loc["softmax", "steps"] <= 800


@pytest.mark.parametrize(
    ("kind", "needed", "verdict", "part"),
    [
        ("solved", 2, ABLE, ""), ("solved", 3, MISSING, "2 of 3 seeds"), ("chance", 2, UNABLE, ""),
        ("chance", 3, MISSING, "2 of 3 seeds"),
    ],
)  # fmt: skip
def test_an_entry_has_a_verdict_once_all_of_its_seeds_have_ended(kind, needed, verdict, part):
    runs = [("mine", kind, seed, seed > 0) for seed in range(3)]
    solved = [("softmax", "solved", seed, seed > 0) for seed in range(3)]
    found = verdicts(frame(*solved, *runs), CEILINGS, {"recall": needed}).set_index("row")
    assert found.loc["mine", ["verdict", "part"]].tolist() == [verdict, part]


@pytest.mark.parametrize(
    ("points", "statuses", "part"),
    [
        (1, ["ok"], "trial, 1 seed"), (2, ["ok"], "1 of 2 trials"), (2, ["ok", "interrupted"],
        "1 of 2 trials"), (2, ["ok", "diverged"], "trial, 1 seed"), (2, ["diverged"] * 2, ""),
    ],
)  # fmt: skip
def test_a_part_of_trials_is_named_and_a_row_of_failed_trials_is_finished(points, statuses, part):
    runs = frame(*(("mine", "chance", seed, False) for seed in range(len(statuses))))
    grid = str({"train.lr": [*range(points)]}).replace("'", '"')
    runs = runs.assign(status=statuses, point=[*map(str, range(len(statuses)))], grid=grid)
    for ceilings in (CEILINGS, {}):
        (found,) = verdicts(runs, ceilings).to_dict("records")
        assert found["part"] == part and (found["verdict"] == MISSING) == bool(part)
        assert words(found).endswith(part)


def test_nothing_is_unable_in_a_budget_that_was_enough_for_none():
    runs = [("mine", "chance", seed, seed > 0) for seed in range(3)]
    late = [("slow", "late", seed, seed > 0) for seed in range(3)]
    found = verdicts(frame(*runs, *late), CEILINGS)
    assert {*found["verdict"]} == {UNDECIDED} and not is_unable_possible(found)


@pytest.mark.parametrize(("steps", "possible"), [(532, True), (534, False)])
def test_others_can_be_unable_where_an_able_row_needed_less_than_a_third_of_the_steps(
    steps, possible
):
    found = pd.DataFrame({"verdict": [ABLE, UNDECIDED, ABLE], "steps": [900.0, math.nan, steps],
                          "budget": 1600})  # fmt: skip
    assert is_unable_possible(found) == possible
    assert not is_unable_possible(found[1:2])


def test_a_question_without_a_ceiling_has_no_verdict():
    found = verdicts(frame(("mine", "solved", 0, False), ("mine", "chance", 1, True)), {})
    assert found[["verdict", "part"]].values.tolist() == [["", ""]]


@pytest.mark.parametrize(("scores", "expected"), [
    ([99, 99.5, 1], 100), ([99, 1, 99, 99], 300), ([1, 99, 1], math.nan), ([1, 99, 1, 99], 400),
    ([], math.nan),
])  # fmt: skip
def test_the_ceiling_is_reached_by_two_evaluations_in_a_row_or_by_the_last(scores, expected):
    steps = STEPS[: len(scores)].tolist()
    for sign in (1, -1):
        found = steps_to(steps, [sign * score for score in scores], sign * 99.0, sign)
        assert found == pytest.approx(expected, nan_ok=True)


def test_the_rise_is_the_slope_of_the_last_half_times_its_span():
    line = 3 + STEPS / 100
    rise = rise_of(STEPS.tolist(), line.tolist(), BUDGET)
    assert rise.rise == pytest.approx(9) and rise.error == pytest.approx(0, abs=1e-9)
    assert not rise.is_flat
    assert rise_of(STEPS.tolist(), (-line).tolist(), BUDGET, -1).rise == pytest.approx(9)
    # Neither a curve of few evaluations nor a noisy one is known to be flat.
    assert Rise(1.0, 1.9, 99.0).is_flat and not Rise(1.0, 2.1, 99.0).is_flat
    assert Rise(1.9, 0.1, 99.0).is_flat and Rise(2.1, 0.1, 99.0).is_rising
    assert not rise_of([900, 1350, 1800], [1, 1, 1], BUDGET).is_flat


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"verdict": ""}, ""), ({"verdict": ABLE, "steps": 1200.0}, "able, 1,200 steps"),
        ({"verdict": UNABLE, "budget": 1800}, "unable in 1,800 steps"),
        ({"rise": 9.04, "error": 4.0}, "undecided, still improves by 9.04"),
        ({"rise": 0.5, "error": 0.3, "distance": 90.0}, "undecided, flat"),
        ({"rise": 9.0, "error": 5.0}, "undecided, no rise shown"),
        ({"rise": 0.0, "trial_rises": True}, "undecided, no rise shown; a trial rises"),
        ({}, "undecided, no rise shown"),
        ({"rise": 9.0, "error": 1.0, "reached": 2, "runs": 3, "farthest": 57.4},
         "undecided, 2 of 3 runs at the ceiling; the farthest ended 57.4 from it"),
        ({"verdict": MISSING, "part": "trial, 1 seed"}, "runs missing: trial, 1 seed"),
    ],
)  # fmt: skip
def test_a_verdict_in_words_says_how_far_an_undecided_row_got(fields, expected):
    assert words({**NO_VERDICT, "verdict": UNDECIDED, **fields}) == expected


def test_the_farthest_run_is_of_those_that_did_not_reach_the_ceiling():
    curves = ((0, 99, 100), (0, 60, 42), (0, 97, 98))
    runs = frame(*(("mine", "rising", seed, True) for seed in range(3)))
    runs["evaluations"] = [[*zip((900, 1350, 1800), scores, strict=True)] for scores in curves]
    (found,) = verdicts(runs, CEILINGS, {"recall": 3}).to_dict("records")
    assert (found["reached"], found["farthest"]) == (1, 57)


def test_the_rise_of_a_row_is_of_a_run_that_rises():
    # A few noisy points have a larger rise than the curve that certainly rises.
    steps, scores = (1200, 1400, 1600, 1800), (0, 60, 0, 60)
    runs = frame(("mine", "rising", 0, False), ("mine", "rising", 1, True))
    runs.at[0, "evaluations"] = [*zip(steps, scores, strict=True)]
    (found,) = verdicts(runs, CEILINGS).to_dict("records")
    assert rise_of(steps, scores, BUDGET).rise > found["rise"] > 5
    assert "still improves" in words(found)


def test_a_trial_that_rises_is_named_where_the_final_runs_do_not():
    runs = frame(("mine", "rising", 0, False), ("mine", "plateau", 1, True), *SOLVER)
    found = verdicts(runs, CEILINGS).set_index("row").to_dict("index")
    assert words(found["mine"]) == "undecided, flat; a trial rises"
    assert not found["softmax"]["trial_rises"]
