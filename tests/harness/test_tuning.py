"""Tuning: the grid of a row, and `harness run --tune` from end to end."""

from dataclasses import replace

import pytest

from harness.tuning import row
from tests.harness.conftest import SMALL, TREES, requested
from tests.reports.conftest import changed, make_record
from zoo.registry import UserError


@pytest.fixture
def request_a():
    return requested("softmax", "listops", listops=TREES, train={"steps": 4, "warmup": 0})


def test_the_default_grid_is_four_rates_around_the_recipe(request_a):
    rate = resolve(request_a).spec.train.lr
    tuned = row(Draft.of(replace(request_a, seed=7)), {})
    assert tuned.tuning.recipe == {"train.lr": rate}
    specs = [trial.spec for trial in tuned.trials]
    ratios = [spec.train.lr / rate for spec in specs]
    assert ratios == pytest.approx([1 / 3, 1, 3, 9], rel=0.01)
    assert [spec.seed for spec in specs] == [0] * 4
    assert "train.lr" not in specs[1].overrides


def test_a_trial_and_a_final_run_differ_in_identity_from_the_same_run_without_tuning(request_a):
    plain = resolve(request_a).spec
    tuned = row(Draft.of(request_a), {})
    trial = tuned.trials[1].spec
    (final,) = tuned.finals(trial, [0])
    assert final.spec.train == plain.train == trial.train
    assert final.spec.tuning and final.spec.tuning.role == "final" and final.spec.seed == 0
    assert len({plain.id, final.spec.id, trial.id}) == 3
    assert "tuning" not in plain.model_dump_json()


def test_a_grid_of_several_fields_is_their_product(request_a):
    texts = {"train.lr": ["1e-2", "1e-3"], "train.weight_decay": ["0.1", "0", "0.0"]}
    trains = [trial.spec.train for trial in row(Draft.of(request_a), texts).trials]
    points = [(train.lr, train.weight_decay) for train in trains]
    assert points == [(1e-3, 0.0), (1e-3, 0.1), (1e-2, 0.0), (1e-2, 0.1)]


@pytest.mark.parametrize(
    ("dev", "chosen"), [((1, 2, 4, 3), 2), ((5, 5, 5, 5), 1), ((5, 5, 0, 0), 1), ((5, 0, 0, 5), 0)]
)
def test_of_trials_that_are_equal_on_dev_the_nearest_to_the_recipe_is_chosen(
    request_a, dev, chosen
):
    tuned, records = row(Draft.of(request_a), {}), {}
    for trial, score in zip(tuned.trials, dev, strict=True):
        record = changed(make_record(), "final", dev=float(score))
        records[trial.spec.id] = record.model_copy(update={"spec": trial.spec})
    assert tuned.best(records).spec == tuned.trials[chosen].spec
    failed = {name: record.model_copy(update={"final": None}) for name, record in records.items()}
    assert tuned.best({}) is None is tuned.best(failed)


@pytest.mark.parametrize(
    ("settings", "texts", "message"),
    [
        ({"train": {"lr": 1e-3}}, {}, "--set train.lr=0.001 gives a field that is tuned"),
        ({}, {"primal.rank": ["1", "2"]}, "--grid primal.rank: rows share a grid"),
        ({}, {"train.lr": ["1e-3", "0.001"]}, "the grid has 1 points; give 2 to 64"),
        ({}, {"train.rate": ["1", "2"]}, "train.rate is not possible"),
        ({}, {"train.lr": ["-1", "2"]}, "train.lr=-1: input should be greater than 0"),
    ],
)
def test_a_grid_that_cannot_be_shared_is_rejected(settings, texts, message):
    with pytest.raises(UserError, match=message):
        row(Draft.of(requested("softmax", "listops", listops=TREES, **settings)), texts)


TINY = ["--attention", "softmax", "--budget", "smoke", "--device", "cpu", "--precision",
        "fp32", "--set", "train.steps=4", "--set", "train.warmup=0", "--tune", "--grid",
        "train.lr=1e-3,1e-2", *SMALL]  # fmt: skip


def is_trial(record) -> bool:
    return record.spec.tuning.role == "trial"


@pytest.mark.slow
def test_tuning_again_trains_nothing_again(call, store, unmeasured):
    code, out, _ = call("run", *TINY, "--seeds", "1")
    records = store.read()[0]
    assert code == 0
    assert (sum(map(is_trial, records)), len(records)) == (2, 3)
    accuracies = {run.spec.train.lr: run.final.dev for run in records if is_trial(run)}
    (chosen,) = (run.spec.train.lr for run in records if not is_trial(run))
    assert accuracies[chosen] == max(accuracies.values()) and out.count("(chosen)") == 1

    code, out, _ = call("run", *TINY, "--seeds", "1,2")
    assert code == 0
    assert out.count("already present") == 1
    again = {run.spec.id: run for run in store.read()[0]}
    assert len(again) == 4
    assert all(again[run.spec.id] == run for run in records)
