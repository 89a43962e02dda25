"""Training: the step, the schedules, the optimisers, the evaluation, and the loop over steps."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from harness.data import restore
from harness.model import build_model
from harness.optimisers import parameter_groups
from harness.train import (
    DivergedError,
    Evaluation,
    Progress,
    Trainer,
    evaluation_steps,
    fit,
    one_cycle,
)
from tasks import metrics
from tasks.answers import NextTokens, Number
from tasks.contract import Split
from tests.harness.conftest import requested
from tests.harness.specs import Clock, nothing, recipe


def test_a_step_is_that_of_a_plain_loop_to_the_bit(tiny, prepare):
    options = {"betas": (0.8, 0.98), "eps": 1e-4, "weight_decay": 0.1}
    fields = {"decay": "all", "cycle_momentum": True, "clip": 1e-3}
    spec = tiny("softmax+primal", steps=8, warmup=2, **options, **fields)
    trainer = prepare(spec)
    torch.manual_seed(7)
    steps = [trainer.step(number) for number in range(8)]
    assert not any(loss.requires_grad for losses in steps for loss in losses.values())
    ours = [{name: loss.item() for name, loss in losses.items()} for losses in steps]

    torch.manual_seed(spec.seed)
    model = build_model(spec, restore(spec).task)
    train = restore(spec).splits["train"]
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0)).split(4)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, **options)
    torch.manual_seed(7)
    theirs = []
    for number in range(8):
        rate, momentum = one_cycle(number, spec.train)
        optimizer.param_groups[0].update(lr=rate, betas=(momentum, 0.98))
        batch = train.gather(order[number])
        logits, losses = model(batch)
        loss = F.cross_entropy(logits, batch.targets)
        theirs.append({"task": loss.item(), **{n: term.item() for n, term in losses.items()}})
        (loss + sum(losses.values())).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()
        optimizer.zero_grad()

    assert ours == theirs and ours[0].keys() == {"task", "ksvd"}
    for mine, other in zip(trainer.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(mine, other)


def some(split: Split, targets: torch.Tensor, **fields) -> Split:
    # Its first examples with two answers each.
    at, count = torch.tensor([[0, 1]] * len(targets)), len(targets)
    parts = split.sequences[:count], split.lengths[:count], split.sequence_ids[:count]
    return replace(Split(*parts, targets, split.padded), target_positions=at, **fields)


@pytest.mark.parametrize("by_length", [False, True])
def test_accuracy_counts_every_answer_of_an_example_in_order(tiny, prepare, by_length):
    trainer = prepare(tiny(batch=4, bucket_by_length=by_length))
    wrong = torch.tensor([[0, 0], [1, 0], [1, 1], [0, 0], [0, 0], [0, 1]])
    split = some(restore(tiny()).splits["test"], wrong)
    trainer.model.eval()
    guesses = trainer.model(split.gather(torch.arange(6)))[0].argmax(-1)
    found = trainer.evaluate(replace(split, targets=(guesses + wrong) % 10))
    assert found.values.tolist() == (wrong == 0).tolist() and found.mean == pytest.approx(8 / 12)


def test_a_mean_loss_is_over_targets_and_not_over_the_end_of_a_text(tiny, prepare):
    trainer, targets = prepare(tiny(batch=4)), torch.tensor([[1, 2], [3, 4], [5, -1]])
    split = some(restore(tiny()).splits["test"], targets, answers=NextTokens())
    trainer.model.eval()
    scores = trainer.model(split.gather(torch.arange(3)))[0].double().log_softmax(-1)
    of_targets = scores.gather(-1, targets.clamp_min(0)[..., None])[..., 0]
    result = trainer.evaluate(split)
    assert result.answered == 5
    assert result.mean == pytest.approx(-of_targets[targets >= 0].mean().item(), rel=1e-5)


def test_accuracy_switches_dropout_off_and_leaves_the_model_as_it_was(tiny, prepare):
    trainer, modes, kinds = prepare(tiny(precision="bf16")), [], []
    inner = trainer.model.layers[0].feed_forward[0]
    inner.register_forward_hook(lambda *call: kinds.append(call[2].dtype))
    trainer.model.register_forward_pre_hook(lambda model, _: modes.append(model.training))
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    state = torch.get_rng_state()
    trainer.evaluate(restore(tiny()).splits["dev"])
    assert modes == [False] * 4 and all(module.training for module in trainer.model.modules())
    assert torch.equal(torch.get_rng_state(), state)
    after = trainer.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    # Products are in half precision, parameters are not.
    trainer.step(0)
    assert kinds == [torch.bfloat16] * 5
    assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("warmup", [0, 1])
@pytest.mark.parametrize("steps", [1, 2, 30])
def test_without_a_warm_up_the_first_step_has_the_highest_rate(steps, warmup):
    # PyTorch's scheduler divides by zero at a warm-up of 1, and never reaches the rate at 0.
    rates, momenta = zip(
        *(one_cycle(step, recipe(steps, warmup, True)) for step in range(steps)), strict=True
    )
    assert rates == pytest.approx([*np.linspace(1e-3, 4e-9, steps)])
    assert momenta == pytest.approx([*np.linspace(0.85, 0.95, steps)])


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
    assert all(p.ndim > 1 for p in decayed)
    assert len(decayed) + len(others) == len([*model.parameters()])


def test_muon_has_the_larger_matrices_of_layers_and_adamw_all_else(tiny, prepare):
    trainer = prepare(tiny("ssd", optimiser="muon", muon_from=5))
    own, other = ({id(p) for group in of.param_groups for p in group["params"]}
                  for of in trainer.optimizer.optimisers)  # fmt: skip
    matrices = {id(p) for name, p in trainer.model.layers.named_parameters() if p.ndim > 1
                if min(p.shape[-2:]) >= 5 and "taps" not in name}  # fmt: skip
    assert own == matrices and own | other == {id(p) for p in trainer.model.parameters()}
    assert not own & other
