"""The model of a run, chosen by what an example of its task is."""

from collections.abc import Callable, Mapping

from torch import nn

from harness.classifier import build_classifier
from harness.decision_transformer import build_decision_transformer
from harness.records.spec import RunSpec
from tasks import Task

Builder = Callable[[RunSpec, Task], nn.Module]


def build_model(spec: RunSpec, task: Task) -> nn.Module:
    """The model that `spec` describes, initialised from the default generator.

    It maps a batch of the task to the scores of its targets and the auxiliary losses by name.

    Raises:
        UserError: a variant or an option is unknown, or not supported at this size or by this kind
            of task; or a package is not installed.
    """
    return BUILDERS[spec.model.kind](spec, task)


def _build_vision(spec: RunSpec, task: Task) -> nn.Module:
    from harness.vision import build_vision

    return build_vision(spec, task)


BUILDERS: Mapping[str, Builder] = {
    "encoder": build_classifier,
    "vision": _build_vision,
    "decision": build_decision_transformer,
}
"""The builder of the model by its `kind`. What needs an extra is imported when it is called."""


def trainable(model: nn.Module) -> int:
    """The number of trainable parameters."""
    return sum(part.numel() for part in model.parameters() if part.requires_grad)
