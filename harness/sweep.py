"""The runs of a sweep: one option of the task, the model, the training or a variant is varied."""

from collections.abc import Sequence
from pathlib import Path

from harness.environment import describe
from harness.plan import Plan, Request, without_data
from harness.records.store import Store
from zoo.composition import Composition
from zoo.registry import UserError, Value, options_of
from zoo.variants import variants

TASK = "task"
"""In place of the name of a task."""


def varied(request: Request, field: str, values: Sequence[str]) -> list[Request]:
    """The request at each value of a field.

    Args:
        request: of a run.
        field: `NAME.OPTION`: NAME is `task`, `model`, `train`, or a task or variant of the run.
        values: as text.

    Raises:
        UserError: the run does not use the field, the settings give it, a value is not possible,
            or all values are equal.
    """
    name, _, option = field.partition(".")
    task = "table" if Path(request.task).suffix else request.task
    owner = task if name == TASK else name
    names = Composition.parse(request.attention).names
    if owner not in ("model", "train", task, *names):
        raise UserError(
            f"--over {field}: {request.attention} on {request.task} has no options of {name!r}; "
            f"give one of {', '.join(sorted({TASK, 'model', 'train', task, *names}))}"
        )
    options = request.settings.get(owner, {})
    if option in options:
        raise UserError(
            f"--set {owner}.{option}={options[option]} gives a field that is swept; leave it out"
        )
    requests = [request.with_setting(f"{owner}.{option}", value) for value in values]
    first, *others = (without_data(request)[1:] for request in requests)
    if all(fields == first for fields in others):
        raise UserError(
            f"--over {field}={','.join(values)} gives one value, but runs of a sweep differ in it; "
            "give two values or more that differ, or this one with --set"
        )
    return requests


def require_one_processor(plans: Sequence[Plan], store: Store) -> None:
    """Reject a sweep whose runs would be of two kinds of processor, before any is trained.

    Raises:
        UserError: the store has a record of a run that is not of this machine, while others are
            still to be trained here.
    """
    records = [store.find(plan.spec) for plan in plans]
    here = describe(plans[0].spec.device).device
    devices = {record.environment.device for record in records if record}
    devices |= set() if all(record and record.final for record in records) else {here}
    if len(devices) > 1:
        raise UserError(
            f"the runs of this sweep would differ in device: {' and '.join(sorted(devices))}; run "
            "it on one of them, or give a --store without the runs of the other"
        )


def default_of(field: str) -> Value | None:
    """The default of an option of a variant, which a specification may leave out; else None."""
    name, _, option = field.partition(".")
    if name not in variants.names():
        return None
    known = options_of(variants.find(name))
    return known[option].default if option in known else None
