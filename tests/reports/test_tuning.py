"""Trials choose the recipe of a row, and have a page."""

import pytest

from harness.records import frame
from harness.records.record import Record, best_trial
from reports.tuning import files, studies
from tests.reports.conftest import snapshot
from tests.reports.test_questions import RATES, tuned


def trial(lr: float = 1e-3, dev: float = 0.5, **fields) -> Record:
    made = tuned(lr=lr, **fields)
    if made.final is None:
        return made
    return made.model_copy(update={"final": made.final.model_copy(update={"dev": 100 * dev})})


TRIALS = [
    trial(lr, dev, accuracy=1 - dev) for lr, dev in zip(RATES, (0.25, 0.75, 0.5), strict=True)
]
FAILED = [trial(lr, status="diverged", reason="loss is nan") for lr in RATES[1:]]
CHOICES = {
    "best on dev, whatever its test score": (TRIALS, 1),
    "nearest to the recipe of equal ones": (
        [trial(lr, 0.7) for lr in (9e-3, 1e-4, 3e-3, 2e-4)], 2
    ),
    "no failed one": ([*FAILED, trial(RATES[0], 0.01)], 2),
    "none where all failed": (FAILED, None),
}  # fmt: skip


@pytest.mark.parametrize("case", CHOICES)
def test_a_trial_is_chosen_and_shown_as_the_best(case):
    trials, place = CHOICES[case]
    for order in (trials, trials[::-1]):
        assert best_trial(order) is (None if place is None else trials[place])
        (study,) = studies(frame.of_records(order))
        chosen = study.trials[study.trials["best"]]["train.lr"].tolist()
        assert chosen == ([] if place is None else [trials[place].spec.train.lr])


def test_the_page_shows_every_trial_and_the_best_point():
    final = tuned("softmax", 3e-4, "final", seed=1)
    other = trial(3e-3, attention="primal", status="diverged", reason="")
    made = files(frame.of_records([final, *TRIALS, other]))
    snapshot("tuning.md", made["tuning.md"].decode())
    assert {*made} == {"tuning.md", "tuning.png", "tuning.svg"}
    assert files(frame.of_records([final])) == {} == files(frame.of_records([]))
