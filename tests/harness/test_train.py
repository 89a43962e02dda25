"""The training step, the schedules of the learning rate, and the evaluation."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR

from harness.data import restore
from harness.model import build_model
from harness.records.spec import TrainSpec
from harness.train import constant, cosine, one_cycle
from tasks.answers import NextTokens
from tasks.contract import Split
from tests.harness.specs import recipe

ADAMW = partial(torch.optim.AdamW, fused=True)
RADAM = partial(torch.optim.RAdam, decoupled_weight_decay=True)


@pytest.mark.parametrize(("optimiser", "schedule", "fields"), [
    (ADAMW, one_cycle, {"cycle_momentum": True}),
    (RADAM, constant, {"optimiser": "radam", "schedule": "constant", "clip": 1e-3}),
])  # fmt: skip
def test_a_step_is_that_of_a_plain_loop_to_the_bit(tiny, prepare, optimiser, schedule, fields):
    options = {"betas": (0.8, 0.98), "eps": 1e-4, "weight_decay": 0.1}
    spec = tiny("softmax+primal", steps=8, warmup=2, decay="all", **options, **fields)
    trainer = prepare(spec)
    torch.manual_seed(7)
    steps = [trainer.step(number) for number in range(8)]
    assert not any(loss.requires_grad for losses in steps for loss in losses.values())
    ours = [{name: loss.item() for name, loss in losses.items()} for losses in steps]

    torch.manual_seed(spec.seed)
    model = build_model(spec, restore(spec).task)
    train = restore(spec).splits["train"]
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0)).split(4)
    optimizer = optimiser(model.parameters(), **options)
    torch.manual_seed(7)
    theirs = []
    for number in range(8):
        rate, momentum = schedule(number, spec.train)
        optimizer.param_groups[0].update(lr=rate, betas=(momentum, 0.98))
        batch = train.gather(order[number])
        logits, losses = model(batch)
        loss = F.cross_entropy(logits, batch.targets)
        theirs.append({"task": loss.item(), **{n: term.item() for n, term in losses.items()}})
        (loss + sum(losses.values())).backward()
        if spec.train.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), spec.train.clip)
        optimizer.step()
        optimizer.zero_grad()

    assert ours == theirs and ours[0].keys() == {"task", "ksvd"}
    for mine, other in zip(trainer.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(mine, other)


def some(split: Split, count: int) -> Split:
    return Split(
        split.sequences[:count], split.lengths[:count], split.sequence_ids[:count],
        split.targets[:count], split.padded,
    )  # fmt: skip


@pytest.mark.parametrize("by_length", [False, True])
def test_accuracy_counts_every_answer_of_an_example_in_order(tiny, prepare, by_length):
    trainer = prepare(tiny(batch=4, bucket_by_length=by_length))
    split = some(restore(tiny()).splits["test"], 6)
    target_positions = torch.tensor([[0, 1]] * 6)
    several = replace(
        split, target_positions=target_positions, targets=torch.zeros(6, 2, dtype=torch.int64)
    )
    trainer.model.eval()
    guesses = trainer.model(several.gather(torch.arange(6)))[0].argmax(-1)
    wrong = torch.tensor([[0, 0], [1, 0], [1, 1], [0, 0], [0, 0], [0, 1]])
    answered = replace(several, targets=(guesses + wrong) % 10)
    found = trainer.evaluate(answered)
    assert found.values.tolist() == (wrong == 0).tolist() and found.mean == pytest.approx(8 / 12)


def test_a_mean_loss_is_over_targets_and_not_over_the_end_of_a_text(tiny, prepare):
    trainer = prepare(tiny(batch=4))
    targets = torch.tensor([[1, 2], [3, 4], [5, -1]])
    split = replace(
        some(restore(tiny()).splits["test"], 3), target_positions=torch.tensor([[0, 1]] * 3),
        targets=targets, answers=NextTokens(),
    )  # fmt: skip
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


def torchs(spec: TrainSpec) -> list[tuple[float, float]]:
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([parameter], lr=spec.lr, betas=spec.betas)
    scheduler = OneCycleLR(
        optimizer, spec.lr, total_steps=spec.steps, pct_start=spec.warmup / spec.steps,
        anneal_strategy="linear", cycle_momentum=spec.cycle_momentum,
    )  # fmt: skip
    values = []
    for step in range(spec.steps):
        (group,) = optimizer.param_groups
        values.append((group["lr"], group["betas"][0]))
        optimizer.step()
        if step < spec.steps - 1:
            scheduler.step()
    return values


@pytest.mark.parametrize(
    ("steps", "warmup", "cycle_momentum"), [(50, 10, True), (7, 2, False), (20, 19, True)]
)
def test_rate_and_beta1_are_those_of_pytorchs_scheduler(steps, warmup, cycle_momentum):
    spec = recipe(steps, warmup, cycle_momentum)
    ours = torch.tensor([one_cycle(step, spec) for step in range(steps)], dtype=torch.float64)
    expected = torch.tensor(torchs(spec), dtype=torch.float64)
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-15)
    assert (ours[:, 1].unique() == torch.tensor(0.8, dtype=torch.float64)).all() != cycle_momentum


@pytest.mark.parametrize("warmup", [0, 1])
@pytest.mark.parametrize("steps", [1, 2, 30])
def test_without_a_warm_up_the_first_step_has_the_highest_rate(steps, warmup):
    # PyTorch's scheduler divides by zero at a warm-up of 1, and never reaches the rate at 0.
    rates, momenta = zip(
        *(one_cycle(step, recipe(steps, warmup, True)) for step in range(steps)), strict=True
    )
    assert rates == pytest.approx([*np.linspace(1e-3, 4e-9, steps)])
    assert momenta == pytest.approx([*np.linspace(0.85, 0.95, steps)])


def test_a_cosine_follows_its_formula_and_ends_at_a_hundredth():
    spec = recipe(100, 10, False).model_copy(update={"schedule": "cosine"})
    rates = [cosine(step, spec)[0] for step in (0, 5, 10, 50, 99)]
    at_10 = 1e-5 + 0.99e-3 * (1 + math.cos(math.pi * 0.1)) / 2
    assert rates[:4] == pytest.approx([1e-6, (1e-6 + 1e-3) / 2, at_10, (1e-3 + 1e-5) / 2])
    assert rates[4] == pytest.approx(1e-5, rel=0.05) and cosine(50, spec)[1] == 0.8
    with pytest.raises(ValidationError, match="schedule=cosine needs cycle_momentum=false"):
        TrainSpec(**{**spec.model_dump(), "cycle_momentum": True})


def test_a_constant_rate_is_reached_at_the_last_step_of_the_warm_up():
    spec = recipe(6, 4, False).model_copy(update={"schedule": "constant"})
    values = [constant(step, spec) for step in range(6)]
    assert values == [(spec.lr * share, 0.8) for share in (0.25, 0.5, 0.75, 1, 1, 1)]
