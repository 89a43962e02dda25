"""The parameters of models: the memory that they take at least, and models of equal size.

For models of equal size a variant has the feed-forward width at which it has the parameters of
softmax.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from harness.environment import memory_of
from harness.model import build_model, trainable
from harness.plan import Plan, Request, resolve
from harness.reference import REFERENCE
from zoo.contract import Unsupported
from zoo.registry import UserError, require_memory

BYTES_PER_PARAMETER = 16
"""fp32: the weight, its gradient, and the two moments of the optimiser."""

WIDTH = "feed_forward"
"""The field of `Transformer` that is set."""

TOLERANCE = 0.01
"""Relative difference of parameters that remains, at most: the width is an integer."""


def require_fit(plan: Plan) -> None:
    """Reject a model whose feed-forward blocks alone exceed the memory of the device.

    Raises:
        UserError: their weights, gradients and the optimiser's moments need more than there is.
    """
    spec, model = plan.spec, plan.spec.model
    count = 2 * model.depth * model.dim * model.feed_forward
    require_memory(
        BYTES_PER_PARAMETER * count,
        f"training {spec.attention} on {plan.task.key}, at least {count:.3g} parameters,",
        f"lower {', '.join(spec.overrides) or f'sizes of the recipe {spec.budget!r}'}",
        memory_of(spec.device),
    )


def matched(request: Request, announce: Callable[[str], None] = lambda line: None) -> Request:
    """The request with the feed-forward width at which it has as many parameters as softmax.

    A variant that does not support the task keeps the recipe's width: its run is skipped.

    Raises:
        UserError: `resolve` raises it, or no width gives the number within `TOLERANCE`.
    """
    plan, reference = resolve(request, announce), resolve(replace(request, attention=REFERENCE))
    for compared in (plan, reference):
        require_fit(compared)
    target = parameters(reference)
    width = plan.spec.model.feed_forward
    try:
        count = parameters(plan)
        per_unit = parameters(plan, width + 1) - count
        width = max(1, width + round((target - count) / per_unit))
        count = parameters(plan, width)
    except Unsupported:
        return replace(request, match="parameters")
    if abs(count - target) > TOLERANCE * target:
        raise UserError(
            f"--match parameters: {request.attention} on {plan.task.key} has {count:,} parameters "
            f"at feed-forward width {width}, {REFERENCE} has {target:,}; leave {request.attention} "
            "out, or give other options or a larger --set model.feed_forward"
        )
    return replace(request.with_setting(f"model.{WIDTH}", width), match="parameters")


def parameters(plan: Plan, width: int | None = None) -> int:
    """Trainable parameters of the model of a plan, with another feed-forward width if given."""
    model = plan.spec.model.model_copy(update={} if width is None else {WIDTH: width})
    with torch.random.fork_rng(devices=[]):
        return trainable(build_model(plan.spec.model_copy(update={"model": model}), plan.task))
