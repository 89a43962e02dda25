"""Models of equal size: the feed-forward width at which a variant has the parameters of softmax."""

from collections.abc import Callable
from dataclasses import replace

import torch

from harness.measure import trainable
from harness.memory import require_fit
from harness.model import build_model
from harness.plan import Plan, Request, resolve
from zoo.contract import Unsupported
from zoo.registry import UserError

REFERENCE = "softmax"
"""The variant whose model, with the recipe's feed-forward width, has the number of parameters."""

WIDTH = "feed_forward"
"""The field of `Transformer` that is set."""

TOLERANCE = 0.01
"""Relative difference of parameters that remains, at most: the width is an integer."""


def matched(request: Request, announce: Callable[[str], None] = lambda line: None) -> Request:
    """The request with the feed-forward width at which parameters are those of softmax.

    A variant that does not support the task keeps the recipe's width: its cell is skipped.

    Raises:
        UserError: `resolve` raises it, or no width gives the number within `TOLERANCE`.
    """
    plan, reference = resolve(request, announce), resolve(replace(request, attention=REFERENCE))
    for one in (plan, reference):
        require_fit(one)
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
    model = {**request.settings.get("model", {}), WIDTH: width}
    return replace(request, match="parameters", settings={**request.settings, "model": model})


def parameters(plan: Plan, width: int | None = None) -> int:
    """Trainable parameters of the model of a plan, with another feed-forward width if given.

    Raises:
        Unsupported: the variant does not support the task.
    """
    spec = plan.spec
    if width is not None:
        model = spec.model.model_copy(update={WIDTH: width})
        spec = spec.model_copy(update={"model": model})
    with torch.random.fork_rng(devices=[]):
        model = build_model(spec, plan.task)
    return trainable(model)
