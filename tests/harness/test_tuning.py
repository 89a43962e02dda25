"""Grids: the trials of `--tune`, and the runs of a sweep with `--over`."""

import pytest

from harness import runs
from harness.questions import question_of
from tests.harness.conftest import SMALL, TREES, requested
from tests.reports.conftest import changed, make_record

SETTINGS = {"listops": TREES, "train": {"steps": 4, "warmup": 0}}


def row(texts=None, settings=SETTINGS):
    question = question_of("listops", "smoke", settings, tune=True, grid=texts or {})
    return runs.trials(question, "softmax", settings, "cpu")


def made(trial, dev, last_step):
    run = changed(make_record(), "final", dev=float(dev))
    last = run.curve[-1].model_copy(update={"step": last_step})
    return run.model_copy(update={"spec": trial, "curve": [last]})


def test_a_trial_and_a_final_run_differ_in_identity_from_the_same_run_without_tuning():
    plain, tuned = requested("softmax", "listops", **SETTINGS), row()
    rates = [spec.train.lr / plain.train.lr for spec in tuned]
    assert rates == pytest.approx([1 / 3, 1, 3, 9], rel=0.01)
    assert {(spec.seed, spec.question.id) for spec in tuned} == {(0, tuned[0].question.id)}
    trial = tuned[1]
    (final,) = runs.finals(trial, [0])
    assert final.train == plain.train == trial.train == trial.question.train
    assert (final.role, final.seed, trial.role, plain.role) == ("final", 0, "trial", "")
    assert len({plain.id, final.id, trial.id}) == 3
    assert [run.seed for run in runs.finals(trial, (3, 1, 2))] == [3, 1, 2]
    assert "role" not in plain.model_dump_json()


def test_a_grid_of_several_fields_is_their_product():
    texts = {"train.lr": ["1e-2", "1e-3"], "train.weight_decay": ["0.1", "0", "0.0"]}
    points = [(trial.train.lr, trial.train.weight_decay) for trial in row(texts)]
    assert points == [(1e-3, 0.0), (1e-3, 0.1), (1e-2, 0.0), (1e-2, 0.1)]


@pytest.mark.parametrize(
    ("dev", "chosen"), [((1, 2, 4, 3), 2), ((5, 5, 5, 5), 1), ((5, 5, 0, 0), 1), ((5, 0, 0, 5), 0)]
)
def test_of_trials_that_are_equal_on_dev_the_nearest_to_the_recipe_is_chosen(dev, chosen):
    tuned = row()
    records = [made(trial, score, 4) for trial, score in zip(tuned, dev, strict=True)]
    assert runs.best(records).spec == tuned[chosen]
    without = [run.model_copy(update={"final": None}) for run in records]
    assert runs.best([]) is None is runs.best(without)


@pytest.mark.parametrize(("dev", "steps", "chosen", "further"), [
    ((1, 2, 4, 3), (4, 4, 4, 4), 2, None),
    ((1, 2, 3, 4), (4, 4, 4, 4), 3, 27e-3),
    ((4, 3, 2, 1), (4, 4, 4, 4), 0, 1.11e-4),
    # The third ends first at the score that solves the question, then the fourth.
    ((1, 2, 3, 4), (4, 4, 2, 3), 2, None),
    ((1, 2, 3, 4), (4, 4, 4, 3), 3, None),
])  # fmt: skip
def test_a_row_whose_best_rate_is_first_or_last_has_a_further_trial(dev, steps, chosen, further):
    tuned = row({"train.lr": ["3.33e-4", "1e-3", "3e-3", "9e-3"]})
    records = [made(*of) for of in zip(tuned, dev, steps, strict=True)]
    assert runs.best(records).spec == tuned[chosen]
    trial = runs.beyond(records)
    assert (trial and trial.train.lr) == (further and pytest.approx(further, rel=0.01))
    assert trial is None or {trial.question.id, trial.role} == {tuned[0].question.id, "trial"}
    if further == 27e-3:  # further trials are due until a rate beyond the best is worse
        higher = runs.beyond([*records, made(trial, 5, 4)])
        assert higher.train.lr == pytest.approx(81e-3, rel=0.01)
        assert runs.beyond([*records, made(trial, 0, 4)]) is None
        failed = made(trial, 0, 4).model_copy(update={"final": None})
        assert runs.beyond([*records, failed]) is None


@pytest.mark.parametrize(("steps", "all_trials"), [(3, False), (4, True)])
def test_the_trial_at_the_rate_of_the_recipe_is_the_first_and_alone_where_it_solves(
    steps, all_trials
):
    tuned = row({"train.lr": ["3.33e-4", "1e-3", "3e-3"]})
    (first,) = runs.due(tuned, [])
    assert first.distance == 0
    records = [made(first, 1, steps)]
    others = runs.due(tuned, records)
    assert others == ([trial for trial in tuned if trial != first] if all_trials else [])
    records += [made(trial, 0, 4) for trial in others]
    assert runs.due(tuned, records) == []


@pytest.mark.parametrize(("scores", "expected"), [
    ((90.0, 94.5), True), ((90.0, 94.0, 92.0), False), ((90.0,), False), ((), False),
])  # fmt: skip
def test_more_seeds_are_due_where_scores_differ_by_more_than_four_points(scores, expected):
    records = [changed(make_record(), "final", score=score) for score in scores]
    assert runs.differ(records) == expected


@pytest.mark.slow
def test_tuning_again_trains_nothing_again(output, store, outcomes):
    argv = ["run", "-a", "softmax", "--budget", "smoke", "--device", "cpu", "--precision", "fp32"]
    argv += ["--tune", "--grid", "train.lr=1e-3,1e-2", *SMALL]
    assert output(*argv, "--seeds", "1").count("(chosen)") == 1
    records = {run.spec.id: run for run in store.read()[0]}
    trials = {run.spec.train.lr: run.final.dev for run in records.values() if not run.spec.seed}
    (final,) = (run.spec for run in records.values() if run.spec.role == "final")
    assert len(trials) == 2 and trials[final.train.lr] == max(trials.values())
    assert output(*argv, "--seeds", "1,2").count("already present; run it") == 1
    again = {run.spec.id: run for run in store.read()[0]}
    assert len(again) == 4 and again | records == again


MQAR = {"mqar": {"train": 64, "vocabulary": 32}}


@pytest.mark.parametrize(("field", "values", "value_of"), [
    ("mqar.pairs", ["2", "4"], lambda spec: spec.task.options["pairs"]),
    ("model.dim", ["32", "64"], lambda spec: spec.model.dim),
    ("primal.rank", ["2", "4"], lambda spec: spec.options["primal"]["rank"]),
])  # fmt: skip
def test_every_value_is_a_run_that_differs_in_it_alone(field, values, value_of):
    settings = runs.varied(MQAR, field, values, "mqar", "primal")
    specs = [requested("primal", "mqar", **of) for of in settings]
    assert [value_of(spec) for spec in specs] == [*map(int, values)]
    assert {spec.task.options["vocabulary"] for spec in specs} == {32}


@pytest.mark.slow
def test_a_sweep_runs_every_cell_once_and_has_a_column_for_each_value(output, store, outcomes):
    argv = ["run", "-a", "softmax,none", "-t", "majority", "--budget", "smoke"]
    argv += ["--over", "task.max_len=8,16"]
    for _ in range(2):
        heading = output(*argv).partition("majority, recipe smoke")[2].splitlines()[1]
        assert "max len 8" in heading and "max len 16" in heading and len(store.read()[0]) == 4
