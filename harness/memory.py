"""The parameters of models: the memory that they take at least, and models of equal size.

The memory is known before a model is allocated. For models of equal size a variant has the
feed-forward width at which it has the parameters of softmax.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import nn

from harness.environment import memory_of
from harness.model import build_model, trainable
from harness.plan import Plan, Request, resolve
from harness.reference import REFERENCE
from zoo.contract import Unsupported
from zoo.registry import UserError, require_memory

BYTES_PER_PARAMETER = 16
"""fp32: the weight, its gradient, and the two moments of the optimiser."""

BYTES_PER_FIXED = 4
"""fp32, of a parameter that is not trained."""

DEPTHS = 3, 4
"""Depths from which a deeper model is estimated: each further layer takes the difference."""

TOO_LARGE = 2**63
"""In place of a size that exceeds 64 bits."""

WIDTH = "feed_forward"
"""The field of `Transformer` that is set."""

TOLERANCE = 0.01
"""Relative difference of parameters that remains, at most: the width is an integer."""


class Footprint(NamedTuple):
    """The number of parameters of a model, and the bytes of its training without activations."""

    parameters: int
    bytes: int


def require_fit(plan: Plan) -> None:
    """Reject a model whose parameters exceed the memory of the device.

    Raises:
        UserError: its weights, gradients, optimiser and buffers need more than there is.
    """
    estimate = footprint(plan)
    if estimate is None:
        return
    spec, parameters = plan.spec, f"at least {estimate.parameters:.3g} parameters"
    sizes = ", ".join(spec.overrides) or f"sizes of the recipe {spec.budget!r}"
    require_memory(
        estimate.bytes,
        f"training {spec.attention} on {plan.task.key}, {parameters},",
        f"lower {sizes}",
        memory_of(spec.device),
    )


def footprint(plan: Plan) -> Footprint | None:
    """The estimate for the model of a plan, from shallow models, without storage where possible.

    None where none can be built; whoever builds the model itself then gives the reason.
    """
    for device in ("meta", "cpu"):
        try:
            return _estimate(plan, torch.device(device))
        except (OverflowError, RuntimeError) as error:
            if isinstance(error, OverflowError) or "overflow" in str(error):
                return Footprint(TOO_LARGE, TOO_LARGE)
        except Exception:  # of a variant, which may compute with the numbers that it draws
            continue
    return None


def _estimate(plan: Plan, device: torch.device) -> Footprint:
    depth = plan.spec.model.depth
    if depth <= max(DEPTHS):
        return _count(plan, depth, device)
    first, last = (_count(plan, part, device) for part in DEPTHS)
    further = depth - max(DEPTHS)
    return Footprint(*(b + further * (b - a) for a, b in zip(first, last, strict=True)))


def _count(plan: Plan, depth: int, device: torch.device) -> Footprint:
    with device:
        model = _built(plan, depth=depth)
    trained = trainable(model)
    fixed = sum(part.numel() for part in model.parameters()) - trained
    buffers = sum(part.numel() * part.element_size() for part in model.buffers())
    used = BYTES_PER_PARAMETER * trained + BYTES_PER_FIXED * fixed + buffers
    return Footprint(trained + fixed, used)


def _built(plan: Plan, **changes: int) -> nn.Module:
    """The model of a plan with other fields; with another depth, without some of its layers."""
    spec = plan.spec
    model = spec.model.model_copy(update=changes)
    layers = (*spec.layers[: model.depth - 1], spec.layers[-1])
    with torch.random.fork_rng(devices=[]):
        return build_model(spec.model_copy(update={"model": model, "layers": layers}), plan.task)


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
    return trainable(_built(plan, **({} if width is None else {WIDTH: width})))
