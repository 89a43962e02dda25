"""What a model takes at least, before it is allocated: parameters without activations."""

from typing import NamedTuple

import torch

from harness.environment import memory_of
from harness.model import build_model
from harness.plan import Plan
from zoo.registry import require_memory

BYTES_PER_PARAMETER = 16
"""fp32: the weight, its gradient, and the two moments of the optimiser."""

BYTES_PER_FIXED = 4
"""fp32, of a parameter that is not trained."""

DEPTHS = 3, 4
"""Depths from which a deeper model is estimated: each further layer takes the difference."""

TOO_LARGE = 2**63
"""Stands for a size that exceeds 64 bits."""


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
    model_spec = plan.spec.model.model_copy(update={"depth": depth})
    layers = (*plan.spec.layers[: depth - 1], plan.spec.layers[-1])
    spec = plan.spec.model_copy(update={"model": model_spec, "layers": layers})
    with torch.random.fork_rng(devices=[]), device:
        model = build_model(spec, plan.task)
    parts = [*model.parameters()]
    trained = sum(part.numel() for part in parts if part.requires_grad)
    fixed = sum(part.numel() for part in parts if not part.requires_grad)
    buffers = sum(part.numel() * part.element_size() for part in model.buffers())
    used = BYTES_PER_PARAMETER * trained + BYTES_PER_FIXED * fixed + buffers
    return Footprint(trained + fixed, used)
