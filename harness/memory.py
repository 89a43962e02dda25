"""The parameters of models: the least memory that they take, and models with those of softmax."""

import torch

from harness.costs.plan import REFERENCE
from harness.data import restore
from harness.environment import memory_of
from harness.model import build_model, trainable
from harness.questions import Settings, spec_of
from harness.records.fields import Device
from harness.records.spec import Question, RunSpec
from zoo.contract import Unsupported
from zoo.registry import UserError, Value, require_memory

BYTES_PER_PARAMETER = 16  # fp32: the weight, its gradient, and the two moments of the optimiser
WIDTH = "model.feed_forward"  # The field that is set
TOLERANCE = 0.01  # Relative difference of parameters that remains, at most: the width is an integer


def require_fit(spec: RunSpec) -> None:
    model = spec.model
    count = 2 * model.depth * model.dim * model.feed_forward
    require_memory(
        BYTES_PER_PARAMETER * count,
        f"training {spec.attention} on {spec.task.key}, at least {count:.3g} parameters,",
        "lower model.depth, model.dim or model.feed_forward",
        memory_of(spec.device),
    )


def matched(
    question: Question, attention: str, settings: Settings, device: Device
) -> dict[str, Value]:
    # A variant that does not support the task keeps the recipe's width: its run is skipped.
    found, reference = (
        spec_of(question, name, settings, device=device) for name in (attention, REFERENCE)
    )
    for compared in (found, reference):
        require_fit(compared)
    target, width = parameters(reference), found.model.feed_forward
    try:
        count = parameters(found)
        per_unit = parameters(found, width + 1) - count
        width = max(1, width + round((target - count) / per_unit))
        count = parameters(found, width)
    except Unsupported:
        return {}
    if abs(count - target) > TOLERANCE * target:
        raise UserError(
            f"--match parameters: {attention} on {question.task.key} has {count:,} parameters "
            f"at feed-forward width {width}, {REFERENCE} has {target:,}; leave {attention} "
            "out, or give other options or a larger --set model.feed_forward"
        )
    return {WIDTH: width}


def parameters(spec: RunSpec, width: int | None = None) -> int:
    values = {} if width is None else {WIDTH: width}
    with torch.random.fork_rng(devices=[]):
        sized = spec.model_copy(update={"values": {**spec.values, **values}})
        return trainable(build_model(sized, restore(spec).task))
