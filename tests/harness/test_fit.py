"""Training from the first step to the last: the curve, the best checkpoint, divergence."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from harness.data import restore
from harness.optimisers import parameter_groups
from harness.train import DivergedError, Evaluation, Progress, Trainer, evaluation_steps, fit
from tasks import metrics
from tasks.answers import Number
from tests.harness.conftest import requested, with_train
from tests.harness.specs import Clock, nothing, recipe
from zoo import create


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


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(("steps", "count", "expected"), [
    (4, 2, [2, 4]), (10, 3, [3, 6, 10]), (2, 5, [1, 2]), (7, 1, [7]),
])  # fmt: skip
def test_dev_is_evaluated_evenly_and_after_the_last_step(
    tiny, prepare, dev, steps, count, expected
):
    spec = tiny(steps=steps, evaluations=count)
    assert evaluation_steps(spec.train) == expected
    curve = train(prepare(spec), dev).curve
    assert [point.step for point in curve if point.dev is not None] == expected
    assert curve[-1].step == steps


def test_a_curve_of_thousands_of_steps_has_about_a_hundred_points(tiny, prepare, dev, monkeypatch):
    monkeypatch.setattr(Trainer, "step", lambda self, number: {"task": torch.tensor(float(number))})
    curve = train(prepare(tiny(steps=2050, evaluations=3)), dev).curve
    assert 100 <= len(curve) <= 106
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


def test_a_loss_on_dev_that_is_not_finite_ends_the_run(tiny, prepare, dev, evaluations):
    evaluations([evaluation(math.nan)])
    with pytest.raises(DivergedError, match="accuracy on dev is nan at step 2"):
        train(prepare(tiny()), dev)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["task", "ksvd"])
def test_a_loss_that_is_not_finite_ends_the_run(tiny, prepare, dev, monkeypatch, name, bad):
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
    tiny, prepare, evaluations, monkeypatch, scores, better, last
):
    monkeypatch.setattr(Trainer, "step", lambda self, number: {"task": torch.tensor(1.0)})
    target = 99.0 if better == "accuracy" else 1.0
    trainer = prepare(tiny(steps=6, evaluations=6, stop_at=target))
    evaluations([evaluation(score, better) for score in scores])
    dev = restore(tiny()).splits["dev"]
    if better != "accuracy":
        dev = replace(dev, answers=Number(tolerance=1.0, measure=better))
    progress = train(trainer, dev)
    assert progress.step == last == progress.curve[-1].step
    # It has ended: a process that continues does not train either.
    fit(trainer, dev, progress, nothing, nothing)
    assert progress.step == last


def test_a_batch_in_parts_of_equal_length_has_the_loss_and_gradient_of_the_whole(prepare):
    gradients, losses = [], []
    for by_length in (False, True):
        spec = requested("softmax", "recall", positions="none", model={"dropout": 0.0})
        trainer = prepare(with_train(spec, batch=16, parts_by_length=by_length))
        parts = trainer.read(0)
        assert [part.tokens.shape[-1] for part in parts] == ([16, 32] if by_length else [32])
        assert not by_length or all(part.mask is None for part in parts)
        trainer.optimizer.step = lambda trainer=trainer: gradients.append(
            [p.grad.clone() for p in trainer.model.parameters() if p.grad is not None]
        )
        losses.append(trainer.step(0)["task"])
    torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-6)


def test_a_record_has_the_scores_of_groups_of_dev_and_of_probes(run_here):
    record = run_here(requested("softmax", "recall", positions="none"))
    assert record.status == "ok", record.reason
    names = ["2 pairs in 16", "4 pairs in 32"]
    evaluated = [point for point in record.curve if point.dev is not None]
    assert evaluated and all([*point.groups] == names for point in evaluated)
    # Four examples of each rung: twice as many answers at 4 pairs.
    for point in evaluated:
        first, second = point.groups.values()
        assert point.dev == pytest.approx((first + 2 * second) / 3)
    assert [*record.final.probes] == [*names, "6 pairs in 48"]
    assert [probe.sample.count for probe in record.final.probes.values()] == [8, 16, 24]
    assert record.final.sample.count == 4 * 2 + 4 * 4


def test_vectors_and_what_a_variant_names_do_not_decay(tiny, prepare):
    model = prepare(tiny("primal")).model
    layer = model.layers[0].attention
    layer.undecayed = ("directions",)
    spec = tiny().train
    assert spec.decay == "matrices"
    decayed, others = (group["params"] for group in parameter_groups(model, spec))
    kept = {id(parameter) for parameter in others}
    assert id(layer.directions) in kept and id(layer.scales) not in kept
    other = model.layers[1].attention
    assert id(other.scales) in kept and id(other.directions) not in kept
    assert all(parameter.ndim > 1 for parameter in decayed)
    assert all(id(p) in kept for p in model.parameters() if p.ndim < 2)


@pytest.mark.parametrize(("decay", "counts"), [("matrices", False), ("matrices+taps", True)])
def test_taps_decay_where_the_recipe_says_so(decay, counts):
    model = nn.Module()
    model.patches = nn.Conv2d(1, 8, 4)
    model.layers = nn.ModuleList([
        create("conv", dim=8, heads=2, max_len=16),
        create("delta", dim=8, heads=2, max_len=16, causal=True, short_conv=4),
        create("nystrom", dim=8, heads=2, max_len=16, conv=3),
        create("nystrom", dim=8, heads=1, max_len=16, conv=3),
    ])  # fmt: skip
    spec = recipe(4, 1).model_copy(update={"decay": decay})
    decayed = {id(p) for p in parameter_groups(model, spec)[0]["params"]}
    names = {name for name, parameter in model.named_parameters() if id(parameter) in decayed}
    taps = {name for name, _ in model.named_parameters() if "taps" in name or "conv." in name}
    assert len(taps) == 4 and (names & taps == taps if counts else not names & taps)
    matrices = {name for name, p in model.named_parameters() if p.ndim > 1} - taps
    assert matrices <= names and "patches.weight" in matrices
