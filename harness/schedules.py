"""Schedules of training: the learning rate and beta1 of each step."""

import math

from harness.records.spec import TrainSpec

MOMENTUM = (0.85, 0.95)
"""Lowest and highest beta1 of a cycle, the defaults of PyTorch's `OneCycleLR`."""


def one_cycle(step: int, spec: TrainSpec) -> tuple[float, float]:
    """Return the learning rate and beta1 of a step, counted from 0.

    The rate rises linearly from lr / 25 at the first step to lr at step `warmup - 1`, and falls
    linearly to lr / 250,000 at the last step. With `cycle_momentum` beta1 falls from 0.95 to 0.85
    and rises again over the same steps; otherwise it is `betas[0]`. For a warm-up of two steps or
    more this is `torch.optim.lr_scheduler.OneCycleLR` with linear annealing. With less, where that
    divides by zero (1) or never reaches lr (0), the first step has the highest rate.
    """
    peak, last = max(spec.warmup - 1, 0), spec.steps - 1
    lowest = MOMENTUM[0] if spec.cycle_momentum else spec.betas[0]
    highest = MOMENTUM[1] if spec.cycle_momentum else spec.betas[0]
    if step <= peak:
        weight = step / peak if peak else 1.0
        return _lerp(spec.lr / 25, spec.lr, weight), _lerp(highest, lowest, weight)
    weight = (step - peak) / (last - peak)
    return _lerp(spec.lr, spec.lr / 250_000, weight), _lerp(lowest, highest, weight)


def cosine(step: int, spec: TrainSpec) -> tuple[float, float]:
    """Return the learning rate and beta1 of a step, counted from 0.

    As DeiT (Touvron et al., 2021, arXiv 2012.12877), by step and not by epoch: the rate rises
    linearly from lr / 1,000 to lr in `warmup` steps, and then follows a cosine over all steps,
    which ends at lr / 100.
    """
    if step < spec.warmup:
        return _lerp(spec.lr / 1000, spec.lr, step / spec.warmup), spec.betas[0]
    weight = (1 - math.cos(math.pi * step / spec.steps)) / 2
    return _lerp(spec.lr, spec.lr / 100, weight), spec.betas[0]


def constant(step: int, spec: TrainSpec) -> tuple[float, float]:
    """Return the learning rate and beta1 of a step: the recipe's.

    In the first `warmup` steps the rate rises linearly, `lr / warmup` at the first.
    """
    return spec.lr * min((step + 1) / max(spec.warmup, 1), 1.0), spec.betas[0]


SCHEDULES = {"one-cycle": one_cycle, "cosine": cosine, "constant": constant}
"""Learning rate and beta1 of a step, by the name in a recipe."""


def _lerp(start: float, end: float, weight: float) -> float:
    return start + (end - start) * weight
