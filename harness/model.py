"""The model of a run, chosen by what an example of its task is."""

from collections.abc import Callable, Mapping

from torch import nn

from harness.classifier import build_classifier
from harness.decision_transformer import build_decision_transformer
from harness.records.spec import RunSpec
from tasks import Task
from tasks.contract import Inputs
from zoo.composition import Composition
from zoo.registry import UserError

Builder = Callable[[RunSpec, Task, Composition], nn.Module]


def build_model(spec: RunSpec, task: Task, composition: Composition) -> nn.Module:
    """The model that `spec` describes, initialised from the default generator.

    It maps a batch of the task to the scores of its targets and the auxiliary losses by name.

    Raises:
        UserError: a variant or an option is unknown, or not supported at this size or by this kind
            of task; or a package is not installed.
    """
    if task.inputs not in BUILDERS:
        raise UserError(f"{task.key}: there is no model of {task.inputs}; use another task")
    return BUILDERS[task.inputs](spec, task, composition)


def _build_vision(spec: RunSpec, task: Task, composition: Composition) -> nn.Module:
    from harness.vision import build_vision

    return build_vision(spec, task, composition)


BUILDERS: Mapping[Inputs, Builder] = {
    "sequences": build_classifier,
    "images": _build_vision,
    "trajectories": build_decision_transformer,
}
"""The builder of the model by `Task.inputs`. What needs an extra is imported when it is called."""
