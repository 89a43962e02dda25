"""Dependence of outputs on tokens that they must not depend on, in value or in gradient."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from zoo.conformance.configuration import SETTINGS, Configuration, Outcome, Setting
from zoo.conformance.tensors import random_tokens

Check = Callable[[Configuration], Outcome]


class Leak(NamedTuple):
    size: float  # Relative to the largest entry
    where: str


def value_leak(
    before: Tensor, after: Tensor, fixed: Tensor, where: str, labels: Tensor | None = None
) -> Leak:
    # Relative to the largest entry where that exceeds 1. For `where` and `labels` see `_largest`.
    change = torch.where(fixed, (after - before).abs().amax(-1), 0.0)
    scale = torch.where(fixed, before.abs().amax(-1), 0.0).amax().clamp_min(1)
    return _largest(change / scale, where, labels)


def gradient_leak(
    x: Tensor, outputs: Tensor, fixed: Tensor, changed: Tensor, where: str,
    labels: Tensor | None = None, losses: Iterable[Tensor] = (),
) -> Leak:  # fmt: skip
    # One backward pass, of a sum of those outputs with random weights: a derivative that is not
    # zero cancels in it with probability zero.
    weights = random_tokens(*outputs.shape[:-1], seed=7, dim=outputs.shape[-1]).to(outputs.dtype)
    total = (outputs * weights)[fixed].sum() + sum(losses)
    if not total.requires_grad:
        return Leak(0.0, where)
    (gradient,) = torch.autograd.grad(total, x, retain_graph=True, materialize_grads=True)
    slope = gradient.abs().amax(-1)
    return _largest(torch.where(changed, slope, 0.0) / slope.amax().clamp_min(1), where, labels)


def _largest(sizes: Tensor, where: str, labels: Tensor | None) -> Leak:
    # `where` has places for `{token}` and `{sample}`, an index or its label.
    sizes = sizes.nan_to_num(float("inf"), float("inf"))
    sample, token = divmod(int(sizes.argmax()), sizes.shape[1])
    label = sample if labels is None else labels[sample]
    return Leak(sizes[sample, token].item(), where.format(sample=label, token=token))


def without_leaks(
    effect: str, settings: Iterable[Setting] = SETTINGS
) -> Callable[[Callable[[Configuration, Setting], Iterator[Leak]]], Check]:
    # A decorator: the check of a function that yields leaks in a setting. The detail names the
    # largest one, relative to what is allowed.
    def decorate(leaks: Callable[[Configuration, Setting], Iterator[Leak]]) -> Check:
        def check(configuration: Configuration) -> Outcome:
            worst, largest = Setting(), Leak(0.0, "")
            for setting in map(configuration.accepted, settings):
                for leak in leaks(configuration, setting):
                    if leak.size / setting.rounding > largest.size / worst.rounding:
                        worst, largest = setting, leak
                if largest.size > worst.rounding:
                    break
            passed = largest.size <= worst.rounding
            detail = f"{effect} {largest.size:.2g} in {worst}, at most {worst.rounding:.0e} allowed"
            return Outcome(passed, detail if passed else f"{detail}; {largest.where}")

        return check

    return decorate


def separating_masks(count: int) -> Tensor:
    # A mask is one binary digit of each position, or its negation. So 2 log2(count) masks separate
    # all count (count - 1) ordered pairs.
    digits = torch.arange((count - 1).bit_length())[:, None]
    digit = torch.arange(count) >> digits & 1 == 1
    return torch.cat([digit, ~digit])
