"""The learning rate and beta1 of each step, next to PyTorch's scheduler."""

import math

import pytest
import torch
from pydantic import ValidationError
from torch.optim.lr_scheduler import OneCycleLR

from harness.records.spec import TrainSpec
from harness.schedules import constant, cosine, one_cycle
from tests.harness.specs import recipe


def torchs(spec: TrainSpec) -> list[tuple[float, float]]:
    """Learning rate and beta1 of each step under PyTorch's `OneCycleLR`."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([parameter], lr=spec.lr, betas=spec.betas)
    scheduler = OneCycleLR(
        optimizer,
        spec.lr,
        total_steps=spec.steps,
        pct_start=spec.warmup / spec.steps,
        anneal_strategy="linear",
        cycle_momentum=spec.cycle_momentum,
    )
    values = []
    for step in range(spec.steps):
        group = optimizer.param_groups[0]
        values.append((group["lr"], group["betas"][0]))
        optimizer.step()
        if step < spec.steps - 1:
            scheduler.step()
    return values


@pytest.mark.parametrize("cycle_momentum", [True, False])
@pytest.mark.parametrize(
    ("steps", "warmup"), [(50, 10), (50, 25), (7, 2), (500, 50), (350, 2), (20, 19), (20, 20)]
)
def test_rate_and_beta1_are_those_of_pytorchs_scheduler(steps, warmup, cycle_momentum):
    spec = recipe(steps, warmup, cycle_momentum)
    ours = torch.tensor([one_cycle(step, spec) for step in range(steps)], dtype=torch.float64)
    expected = torch.tensor(torchs(spec), dtype=torch.float64)
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-15)
    assert (ours[:, 1].unique() == torch.tensor(0.8, dtype=torch.float64)).all() != cycle_momentum


@pytest.mark.parametrize("cycle_momentum", [True, False])
@pytest.mark.parametrize("warmup", [0, 1])
@pytest.mark.parametrize("steps", [1, 2, 30])
def test_without_a_warm_up_of_two_steps_the_first_step_has_the_highest_rate(
    steps, warmup, cycle_momentum
):
    """PyTorch's scheduler divides by zero at a warm-up of 1, and never reaches the rate at 0."""
    spec = recipe(steps, warmup, cycle_momentum)
    values = [one_cycle(step, spec) for step in range(steps)]
    assert values[0] == (1e-3, 0.85 if cycle_momentum else 0.8)
    if steps > 1:
        assert values[-1] == pytest.approx((4e-9, 0.95 if cycle_momentum else 0.8))
    rates = torch.tensor([rate for rate, _ in values], dtype=torch.float64)
    evenly = torch.linspace(rates[0], rates[-1], steps, dtype=torch.float64)
    torch.testing.assert_close(rates, evenly)


def test_pytorchs_scheduler_cannot_do_without_a_warm_up():
    with pytest.raises(ZeroDivisionError):
        torchs(recipe(30, 1, False))
    assert max(rate for rate, _ in torchs(recipe(30, 0, False))) < 0.97e-3


def test_a_cosine_follows_its_formula_and_ends_at_a_hundredth():
    spec = recipe(100, 10, False).model_copy(update={"schedule": "cosine"})
    rates = [cosine(step, spec)[0] for step in range(100)]
    assert rates[0] == pytest.approx(1e-6) and rates[5] == pytest.approx((1e-6 + 1e-3) / 2)
    assert rates[10] == pytest.approx(1e-5 + 0.99e-3 * (1 + math.cos(math.pi * 0.1)) / 2)
    assert rates[50] == pytest.approx((1e-3 + 1e-5) / 2)
    assert rates[99] == pytest.approx(1e-5, rel=0.05)
    assert {cosine(step, spec)[1] for step in range(100)} == {0.8}
    with pytest.raises(ValidationError, match="schedule=cosine needs cycle_momentum=false"):
        TrainSpec(**{**spec.model_dump(), "cycle_momentum": True})


def test_a_constant_rate_is_reached_at_the_last_step_of_the_warm_up():
    spec = recipe(6, 4, False).model_copy(update={"schedule": "constant"})
    values = [constant(step, spec) for step in range(6)]
    assert [rate / spec.lr for rate, _ in values] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert {beta for _, beta in values} == {0.8}
