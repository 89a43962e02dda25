"""Trials choose a row's recipe, are on no board, and are on a page of their own."""

import pytest

from harness.records.record import Record
from harness.records.tuning import best
from reports.pages import tuning_files
from reports.tables import as_csv, boards
from tests.reports.conftest import make_record

RATES = (3e-4, 1e-3, 3e-3)


def trials_with(*accuracies: float) -> list[Record]:
    """A trial at each rate, with its accuracy on dev; that on test is the opposite."""
    pairs = zip(RATES, accuracies, strict=True)
    return [tuned(lr=rate, dev=dev, accuracy=1 - dev) for rate, dev in pairs]


def tuned(
    attention: str = "softmax",
    lr: float = 1e-3,
    dev: float = 0.5,
    *,
    role: str = "trial",
    rates: tuple[float, ...] = RATES,
    **fields,
) -> Record:
    """A run of a grid of learning rates; the rate of its recipe is 1e-3."""
    made = make_record(
        attention, train={"lr": lr}, overrides={} if lr == 1e-3 else {"train.lr": lr}, **fields
    ).model_dump()
    made["spec"]["tuning"] = {
        "grid": {"train.lr": rates}, "recipe": {"train.lr": 1e-3}, "role": role,
    }  # fmt: skip
    if made.get("final"):
        made["final"]["dev"] = 100 * dev
    return Record.model_validate(made)


def final(attention: str = "softmax", lr: float = 1e-3, seed: int = 1, **fields) -> Record:
    return tuned(attention, lr, role="final", seed=seed, **fields)


def test_the_best_trial_on_dev_is_chosen_whatever_its_test_accuracy():
    trials = trials_with(0.2, 0.6, 0.4)
    for given in (trials, trials[::-1]):
        assert best(given) is trials[1]


def test_of_equal_trials_that_nearest_to_the_recipe_is_chosen():
    trials = [tuned(lr=rate, dev=0.7) for rate in (9e-3, 1e-4, 3e-3, 2e-4)]
    assert best(trials) is trials[2]


def test_a_failed_trial_is_not_chosen():
    failed = [tuned(lr=rate, status="diverged", reason="loss is nan") for rate in RATES[1:]]
    assert best([*failed, last := tuned(lr=RATES[0], dev=0.01)]) is last
    assert best(failed) is None


def test_rows_tuned_over_one_grid_share_a_board_without_their_trials():
    trials = [tuned(name, lr=rate) for name in ("softmax", "primal") for rate in RATES]
    runs = [final("softmax", 3e-4, accuracy=0.6), final("primal", 1e-3)]
    (board,) = boards([*trials, *runs])
    assert [row.label for row in board.rows] == ["softmax [lr=0.0003]", "primal [lr=0.001]"]
    assert [row.runs for row in board.rows] == [(runs[0],), (runs[1],)]
    assert "tuned over learning rate 0.0003, 0.001, 0.003" in board.title
    assert '""train.lr"": 0.0003' in as_csv([board])


@pytest.mark.parametrize("other", [make_record("primal"), final("primal", rates=RATES[1:])])
def test_other_grids_and_untuned_runs_are_on_boards_of_their_own(other):
    assert len(boards([final(), other])) == 2


def test_a_row_of_which_all_trials_failed_is_a_failure_with_its_reason():
    failed = [tuned("primal", rate, status="diverged", reason="") for rate in RATES]
    (board,) = boards([final(), *failed])
    assert [row.label for row in board.rows] == ["softmax [lr=0.001]", "primal"]
    assert board.rows[1].failures == "diverged at step 300"
    # While a trial is missing, it may still finish.
    assert len(boards([final(), *failed[1:]])[0].rows) == 1


def test_the_page_shows_every_trial_and_the_chosen_point():
    made = tuning_files(
        [final(), *trials_with(0.25, 0.75, 0.5), tuned("primal", 3e-3, status="diverged")]
    )
    page = made["tuning.md"].decode()
    assert "| softmax | 25.0 | **75.0** | 50.0 |" in page
    assert "| primal | – | – | diverged at step 300 |" in page
    assert {*made} == {"tuning.md", "tuning.png", "tuning.svg"}
    assert tuning_files([final()]) == {}
