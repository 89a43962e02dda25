"""The baselines of a task, fitted step by step and stored with each step."""

from collections.abc import Callable

from harness.data import Data
from harness.environment import describe
from harness.records.baselines import TaskBaselines
from harness.records.fields import now
from harness.records.spec import TaskSpec
from harness.records.store import BaselineStore
from tasks.baselines import BASELINES_VERSION, steps

OnStep = Callable[[str, int, int], None]
"""Called with the name of a step that begins, the number of steps before it, and of all."""


def fit(
    spec: TaskSpec, data_of: Callable[[TaskSpec], Data], store: BaselineStore, on_step: OnStep
) -> TaskBaselines:
    """The baselines of a task, from the store or fitted now, by one process at a time.

    Each step is stored when it is fitted: a process that is ended loses the step that it is at.
    Data are read only if something is left to fit.

    Raises:
        UserError: the task or its data have changed or are missing, or the file of its name is not
            a record, or cannot be written.
    """
    store.require_writable()
    with store.locks.alone(store.name(spec)):
        store.remove_partial_files()
        found = store.find(spec)
        if found and found.version == BASELINES_VERSION and not found.left:
            return found
        data = data_of(spec)
        all_steps = steps(data.task, data.splits)
        if found is None or found.version != BASELINES_VERSION or {*found.left} - {*all_steps}:
            found = TaskBaselines(
                spec=spec, version=BASELINES_VERSION, metric=data.summary.metric, scores={},
                left=tuple(all_steps), started=now(), environment=describe("cpu"),
            )  # fmt: skip
        for name in found.left:
            on_step(name, len(all_steps) - len(found.left), len(all_steps))
            scores = {name: found.metric.value(mean) for name, mean in all_steps[name]().items()}
            update = {"scores": {**found.scores, **scores}, "left": found.left[1:]}
            found = found.model_copy(update=update)
            store.write(found)
        return found
