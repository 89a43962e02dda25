"""Training from the first step to the last: the curve, the best checkpoint, divergence."""

import math

import pytest
import torch

from harness.data import restore
from harness.train import DivergedError, Evaluation, Progress, Trainer, evaluation_steps, fit
from tasks import metrics


def nothing(*_) -> None:
    pass


def train(trainer, dev, save=nothing, on_point=nothing) -> Progress:
    progress = Progress()
    fit(trainer, dev, progress, on_point, lambda: save(progress))
    return progress


def evaluation(mean: float, metric: str = "accuracy") -> Evaluation:
    """Of 8 answers, with that mean."""
    return Evaluation(torch.full((8,), mean), 8, metrics.find(metric).metric)


@pytest.fixture
def evaluations(monkeypatch):
    """Replaces the evaluations on dev by the ones of a list, in order."""

    def make(found: list[Evaluation]) -> None:
        left = iter(found)
        monkeypatch.setattr(Trainer, "evaluate", lambda self, split: next(left))

    return make


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("steps", "count", "expected"),
    [(4, 2, [2, 4]), (10, 3, [3, 6, 10]), (2, 5, [1, 2]), (7, 1, [7])],
)
def test_dev_is_evaluated_at_even_intervals_and_after_the_last_step(
    plan, prepare, dev, steps, count, expected
):
    planned = plan(steps=steps, evaluations=count)
    assert evaluation_steps(planned.train) == expected
    curve = train(prepare(planned), dev).curve
    assert [point.step for point in curve if point.dev is not None] == expected
    assert curve[-1].step == steps


def test_a_curve_of_thousands_of_steps_has_about_a_hundred_points(plan, prepare, dev, monkeypatch):
    monkeypatch.setattr(Trainer, "step", lambda self, number: {"task": torch.tensor(float(number))})
    curve = train(prepare(plan(steps=2050, evaluations=3)), dev).curve
    assert 100 <= len(curve) <= 106
    # Every step is in one point only, which is the mean of its steps.
    starts = [0, *(point.step for point in curve)]
    for start, point in zip(starts, curve, strict=False):
        assert point.loss == pytest.approx((start + point.step - 1) / 2)
    assert starts[-1] == 2050


def test_each_auxiliary_loss_is_in_the_curve_by_its_name(plan, prepare, dev, monkeypatch):
    real, losses_of_steps = Trainer.step, []

    def spy(self, number):
        losses_of_steps.append({name: loss.item() for name, loss in real(self, number).items()})
        return {name: torch.tensor(loss) for name, loss in losses_of_steps[-1].items()}

    monkeypatch.setattr(Trainer, "step", spy)
    curve = train(prepare(plan("softmax+primal", steps=3, warmup=1)), dev).curve
    assert [{"task": point.loss, **point.losses} for point in curve] == losses_of_steps
    assert [point.losses.keys() for point in curve] == [{"ksvd"}] * 3


@pytest.mark.parametrize(
    ("metric", "means", "step", "best"),
    [
        ("accuracy", [0.25, 0.5, 0.5, 0.125], 2, 50.0),
        ("squared-error", [3.0, 2.0, 2.5, 2.0], 2, 2.0),
        ("accuracy", [0.0, 0.0, 0.0, 0.0], 1, 0.0),
    ],
)
def test_the_best_checkpoint_is_the_earliest_of_the_best_on_dev(
    plan, prepare, dev, evaluations, metric, means, step, best
):
    evaluations([evaluation(mean, metric) for mean in means])
    trainer, states = prepare(plan(steps=4, evaluations=4)), []

    def save(_):
        states.append({n: value.clone() for n, value in trainer.model.state_dict().items()})

    progress = train(trainer, dev, save=save)
    assert (progress.best_step, progress.best) == (step, best)
    scores = [evaluation(mean, metric).score for mean in means]
    assert [point.dev for point in progress.curve] == scores
    expected = states[step - 1]
    assert progress.best_state.keys() == expected.keys()
    assert all(torch.equal(progress.best_state[name], expected[name]) for name in expected)
    assert not torch.equal(expected["token.weight"], states[3]["token.weight"])


@pytest.mark.parametrize(("before", "best"), [(None, 75.0), (87.5, 87.5)])
def test_the_best_on_test_is_recorded_and_selects_nothing(plan, prepare, monkeypatch, before, best):
    splits = restore(plan()).splits
    accuracies = {
        id(splits["dev"]): iter([0.5, 0.25, 0.25]),
        id(splits["test"]): iter([0.25, 0.75, 0.5]),
    }
    monkeypatch.setattr(
        Trainer, "evaluate", lambda self, split: evaluation(next(accuracies[id(split)]))
    )
    trainer = prepare(plan(steps=3, warmup=1, evaluations=3))
    progress = Progress(best_on_test=before)
    fit(trainer, splits["dev"], progress, nothing, nothing, test=splits["test"])
    assert (progress.best_step, progress.best, progress.best_on_test) == (1, 50.0, best)


def test_a_loss_on_dev_that_is_not_finite_ends_the_run(plan, prepare, dev, evaluations):
    evaluations([evaluation(math.nan)])
    with pytest.raises(DivergedError, match="accuracy on dev is nan at step 2"):
        train(prepare(plan()), dev)


def test_the_state_saved_at_an_evaluation_includes_its_own_point(plan, prepare, dev):
    saved = []
    train(prepare(plan()), dev, save=lambda p: saved.append((p.step, p.curve[-1].step)))
    assert saved == [(2, 2), (4, 4)]


def test_the_callback_gets_every_point_in_order(plan, prepare, dev):
    points = []
    progress = train(prepare(plan()), dev, on_point=points.append)
    assert points == progress.curve
    seconds = [point.seconds for point in points]
    assert seconds[0] > 0
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["task", "ksvd"])
def test_a_loss_that_is_not_finite_ends_the_run(plan, prepare, dev, monkeypatch, name, bad):
    def step(self, number):
        losses = {"task": torch.tensor(1.0), "ksvd": torch.tensor(1.0)}
        return losses | ({name: torch.tensor(bad)} if number == 2 else {})

    monkeypatch.setattr(Trainer, "step", step)
    progress = Progress()
    with pytest.raises(DivergedError, match=f"{name} loss is {bad} by step 3"):
        fit(prepare(plan(steps=8)), dev, progress, nothing, nothing)
    assert [point.step for point in progress.curve] == [1, 2]


def test_evaluation_time_is_not_training_time(plan, prepare, dev, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("harness.train.time.perf_counter", lambda: clock[0])

    def step(self, number):
        clock[0] += 1.0
        return {"task": torch.tensor(0.0)}

    def evaluate(self, split):
        clock[0] += 100.0
        return evaluation(0.0)

    monkeypatch.setattr(Trainer, "step", step)
    monkeypatch.setattr(Trainer, "evaluate", evaluate)
    assert train(prepare(plan()), dev).seconds == 4.0


def test_the_device_is_synchronised_before_training_time_is_taken(plan, prepare, dev, monkeypatch):
    clock = [0.0]

    def wait(device):
        clock[0] += 10.0

    monkeypatch.setattr("harness.train.time.perf_counter", lambda: clock[0])
    monkeypatch.setattr("harness.train.synchronise", wait)
    progress = train(prepare(plan()), dev)
    assert progress.seconds == 10.0 * len(progress.curve)
