"""Training from the first step to the last: the curve, the best checkpoint, divergence."""

import math
from dataclasses import replace

import pytest
import torch

from harness.optimisers import parameter_groups
from harness.train import DivergedError, Evaluation, Progress, Trainer, evaluation_steps, fit
from tasks import metrics
from tasks.answers import Number
from tests.harness.conftest import requested
from tests.harness.specs import Clock, nothing


def train(trainer, dev, save=nothing, on_point=nothing) -> Progress:
    progress = Progress()
    fit(trainer, dev, progress, on_point, lambda: save(progress))
    return progress


def evaluation(mean: float, metric: str = "accuracy") -> Evaluation:
    return Evaluation(torch.full((8,), mean), 8, metrics.find(metric).metric)


@pytest.fixture
def evaluations(monkeypatch):
    def make(found: list[Evaluation]) -> None:
        left = iter(found)
        monkeypatch.setattr(Trainer, "evaluate", lambda self, split: next(left))

    return make


def test_a_curve_of_thousands_of_steps_has_about_a_hundred_points(tiny, prepare, dev, monkeypatch):
    monkeypatch.setattr(Trainer, "step", lambda self, number: {"task": torch.tensor(float(number))})
    curve = train(prepare(tiny(steps=2050, evaluations=3)), dev).curve
    assert 100 <= len(curve) <= 106
    # Dev is evaluated evenly, and after the last step.
    assert [point.step for point in curve if point.dev is not None] == [683, 1366, 2050]
    assert evaluation_steps(tiny(steps=2, evaluations=5).train) == [1, 2]
    # Every step is in one point only, which is the mean of its steps.
    starts = [0, *(point.step for point in curve)]
    for start, point in zip(starts, curve, strict=False):
        assert point.loss == pytest.approx((start + point.step - 1) / 2)
    assert starts[-1] == 2050


@pytest.mark.parametrize(("metric", "means", "step", "best"), [
    ("accuracy", [0.25, 0.5, 0.5, 0.125], 2, 50.0), ("squared-error", [3.0, 2.0, 2.5, 2.0], 2, 2.0),
    ("accuracy", [0.0, 0.0, 0.0, 0.0], 1, 0.0),
])  # fmt: skip
def test_the_best_is_the_earliest_on_dev(
    tiny, prepare, dev, evaluations, metric, means, step, best
):
    evaluations([evaluation(mean, metric) for mean in means])
    trainer, states = prepare(tiny(steps=4, evaluations=4)), []

    def save(progress):
        assert progress.curve[-1].step == progress.step
        states.append({n: value.clone() for n, value in trainer.model.state_dict().items()})

    progress = train(trainer, dev, save=save)
    assert (progress.best_step, progress.best) == (step, best)
    scores = [evaluation(mean, metric).score for mean in means]
    assert [point.dev for point in progress.curve] == scores
    expected = states[step - 1]
    assert progress.best_state.keys() == expected.keys()
    assert all(torch.equal(progress.best_state[name], expected[name]) for name in expected)
    assert not torch.equal(expected["token.weight"], states[3]["token.weight"])


@pytest.mark.parametrize(("name", "bad"), [("task", math.inf), ("ksvd", math.nan)])
def test_a_loss_that_is_not_finite_ends_the_run(
    tiny, prepare, dev, monkeypatch, evaluations, name, bad
):
    evaluations([evaluation(math.nan)])
    with pytest.raises(DivergedError, match="accuracy on dev is nan at step 2"):
        train(prepare(tiny()), dev)

    def step(self, number):
        losses = {"task": torch.tensor(1.0), "ksvd": torch.tensor(1.0)}
        return losses | ({name: torch.tensor(bad)} if number == 2 else {})

    monkeypatch.setattr(Trainer, "step", step)
    progress = Progress()
    with pytest.raises(DivergedError, match=f"{name} loss is {bad} by step 3"):
        fit(prepare(tiny(steps=8)), dev, progress, nothing, nothing)
    assert [point.step for point in progress.curve] == [1, 2]


def test_training_time_ends_with_the_device_and_excludes_evaluation(
    tiny, prepare, dev, monkeypatch
):
    clock, losses = Clock(), {"task": torch.tensor(0.0)}
    monkeypatch.setattr("harness.train.time.perf_counter", clock)
    monkeypatch.setattr("harness.train.synchronise", lambda device: clock.call(10.0)())
    monkeypatch.setattr(Trainer, "step", lambda *_: clock.call(1.0)() or losses)
    monkeypatch.setattr(Trainer, "evaluate", lambda *_: clock.call(100.0)() or evaluation(0.0))
    points = []
    progress = train(prepare(tiny()), dev, on_point=points.append)
    seconds = [point.seconds for point in progress.curve]
    assert points == progress.curve and seconds[0] > 0 and seconds == sorted(seconds)
    assert progress.seconds == 4.0 + 10.0 * len(seconds)


@pytest.mark.parametrize(("scores", "better", "last"), [
    ((0.2, 0.99, 0.5, 0.99, 0.995, 0.1), "accuracy", 5),
    ((0.2, 0.99, 0.5, 0.99, 0.5, 0.99), "accuracy", 6),
    ((9.0, 8.0, 0.5, 0.9, 0.1, 0.1), "squared-error", 4),
])  # fmt: skip
def test_training_ends_when_two_evaluations_in_a_row_reach_the_score(
    tiny, prepare, dev, evaluations, monkeypatch, scores, better, last
):
    monkeypatch.setattr(Trainer, "step", lambda self, number: {"task": torch.tensor(1.0)})
    target = 99.0 if better == "accuracy" else 1.0
    trainer = prepare(tiny(steps=6, evaluations=6, stop_at=target))
    evaluations([evaluation(score, better) for score in scores])
    if better != "accuracy":
        dev = replace(dev, answers=Number(tolerance=1.0, measure=better))
    progress = train(trainer, dev)
    assert progress.step == last == progress.curve[-1].step
    # It has ended: a process that continues does not train either.
    fit(trainer, dev, progress, nothing, nothing)
    assert progress.step == last


def test_a_record_has_the_scores_of_groups_of_dev_and_of_probes(run_here):
    record = run_here(requested("softmax", "recall", positions="none"))
    assert record.status == "ok", record.reason
    names = ["2 pairs in 16", "4 pairs in 32"]
    evaluated = [point for point in record.curve if point.dev is not None]
    # Four examples of each rung: twice as many answers at 4 pairs.
    for point in evaluated:
        first, second = (point.groups[name] for name in names)
        assert point.dev == pytest.approx((first + 2 * second) / 3)
    assert evaluated and [*record.final.probes] == [*names, "6 pairs in 48"]
    assert [probe.sample.count for probe in record.final.probes.values()] == [8, 16, 24]
    assert record.final.sample.count == 4 * 2 + 4 * 4


def test_vectors_and_what_a_variant_names_do_not_decay(tiny, prepare):
    model = prepare(tiny("primal")).model
    first, second = (layer.attention for layer in model.layers)
    first.undecayed = ("directions",)
    decayed, others = (group["params"] for group in parameter_groups(model, tiny().train))
    kept = {id(parameter) for parameter in others}
    named = (first.directions, first.scales, second.scales, second.directions)
    assert [id(p) in kept for p in named] == [True, False, True, False]
    assert all(p.ndim > 1 for p in decayed) and len(decayed) + len(others) == len(
        [*model.parameters()]
    )
