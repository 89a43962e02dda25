"""Trials at the points of a grid, and sweeps of one option; see docs/decisions/suites.md."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import torch

from harness.data import restore
from harness.environment import describe
from harness.model import build_model, require_fit, trainable
from harness.questions import RATE, SHARED, Settings, name_of, spec_of
from harness.records.cost import REFERENCE
from harness.records.fields import Device
from harness.records.frame import best_trials_first, of_records
from harness.records.record import Record
from harness.records.spec import Question, RunSpec
from harness.records.store import Store
from zoo.composition import Composition
from zoo.contract import Unsupported
from zoo.registry import UserError, Value

WIDTH = "model.feed_forward"  # The field that makes models of equal size
TOLERANCE = 0.01  # Relative difference of parameters that remains, at most
TASK = "task"  # Owner of the options of the task of a sweep, in place of its name
TRIAL_SEED = 0  # The seed of all trials; final runs have other seeds
MOST_BEYOND = 3  # Trials of a row at rates beyond its grid, at most
MOST_SPREAD = 4.0  # The points by which the scores of seeds differ without more seeds
MOST_VALUES = 1_000  # Values of the field of a sweep, at most


def trials(
    question: Question, attention: str, settings: Settings, device: Device,
    values: Mapping[str, Value] = MappingProxyType({}),
) -> list[RunSpec]:  # fmt: skip
    return [
        spec_of(
            question, attention, settings, seed=TRIAL_SEED, device=device,
            role="trial" if question.grid else "", values={**values, **point},
        )
        for point in question.points
    ]  # fmt: skip


def matched(
    question: Question, attention: str, settings: Settings, device: Device
) -> dict[str, Value]:
    # Unsupported variants keep the width of the recipe: their runs are skipped.
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
        wider = "" if question.suite else " or a larger --set model.feed_forward"
        raise UserError(
            f"--match parameters: {attention} on {question.task.key} has {count:,} parameters "
            f"at feed-forward width {width}, {REFERENCE} has {target:,}; leave {attention} "
            f"out, or give other options{wider}"
        )
    return {WIDTH: width}


def parameters(spec: RunSpec, width: int | None = None) -> int:
    values = {} if width is None else {WIDTH: width}
    with torch.random.fork_rng(devices=[]):
        sized = spec.model_copy(update={"values": {**spec.values, **values}})
        return trainable(build_model(sized, restore(spec).task))


def best(records: Iterable[Record]) -> Record | None:
    finished = {record.spec.id: record for record in records if record.final}
    if not finished:
        return None
    return finished[best_trials_first(of_records(finished.values()))["id"].iloc[0]]


def beyond(records: Sequence[Record]) -> RunSpec | None:
    # The ratio of the best rate to its neighbour continues. None where `MOST_BEYOND` trials are
    # beyond the grid, or the best trial solved the question.
    chosen = best(records)
    rates = sorted({record.spec.train.lr for record in records})
    if not chosen or len(rates) < 2 or has_solved(chosen):
        return None
    neighbour = {rates[0]: rates[1], rates[-1]: rates[-2]}
    rate, grid = chosen.spec.train.lr, chosen.spec.question.grid.get(RATE, ())
    if rate not in neighbour or len(rates) >= len(grid) + MOST_BEYOND:
        return None
    return at_rate(chosen.spec, float(f"{rate * rate / neighbour[rate]:.3g}"))


def due(trials: Sequence[RunSpec], records: Sequence[Record]) -> list[RunSpec]:
    # The trial at the recipe's rate comes first, and is the only one if it ends at the ceiling;
    # then the other points of the grid, then `beyond`.
    made = {record.spec.id for record in records}
    first = [trial for trial in trials if trial.distance == 0][:1] or [*trials]
    if missing := [trial for trial in first if trial.id not in made]:
        return missing
    if len(first) == 1 and any(has_solved(r) for r in records if r.spec.id == first[0].id):
        return []
    if missing := [trial for trial in trials if trial.id not in made]:
        return missing
    further = beyond(records)
    return [further] if further else []


def has_solved(record: Record) -> bool:
    return bool(record.final) and record.curve[-1].step < record.spec.train.steps


def lines_of(records: Sequence[Record], chosen: Record | None) -> Iterator[str]:
    for number, record in enumerate(records):
        if not number:
            yield f"{record.spec.attention} on {record.spec.task.key}, on dev:"
        point = ", ".join(f"{path}={value}" for path, value in record.spec.values.items())
        end = record.reason or record.status
        result = record.selection.sentence(record.final.dev) if record.final else end
        yield f"  {point}: {result}{' (chosen)' if record is chosen else ''}"


def differ(records: Sequence[Record]) -> bool:
    scores = [record.final.score for record in records if record.final]
    return len(scores) > 1 and max(scores) - min(scores) > MOST_SPREAD


def at_rate(trial: RunSpec, rate: float) -> RunSpec:
    return trial.model_copy(update={"values": {**trial.values, RATE: rate}})


def finals(chosen: RunSpec, seeds: Sequence[int]) -> list[RunSpec]:
    return [chosen.model_copy(update={"seed": seed, "role": "final"}) for seed in seeds]


def varied(
    settings: Settings, field: str, values: Sequence[str], task: str, attention: str
) -> list[Settings]:
    name, _, option = field.partition(".")
    owner = name_of(task) if name == TASK else name
    owners = {*SHARED, name_of(task), *Composition.parse(attention).names}
    if owner not in owners:
        raise UserError(
            f"--over {field}: {attention} on {task} has no options of {name!r}; "
            f"give one of {', '.join(sorted({TASK, *owners}))}"
        )
    if len(values) > MOST_VALUES:
        raise UserError(f"--over {field} has {len(values):,} values; give up to {MOST_VALUES:,}")
    options = settings.get(owner, {})
    if option in options:
        raise UserError(
            f"--set {owner}.{option}={options[option]} gives a field that is swept; leave it out"
        )
    return [{**settings, owner: {**options, option: value}} for value in values]


def require_several(specs: Sequence[RunSpec], field: str, values: Sequence[str]) -> None:
    if len({spec.id for spec in specs}) < 2:
        raise UserError(
            f"--over {field}={','.join(values)} gives one value, but runs of a sweep differ in it; "
            "give two values or more that differ, or this one with --set"
        )


def require_one_processor(specs: Sequence[RunSpec], store: Store) -> None:
    records = [store.find(spec) for spec in specs]
    devices = {record.environment.device for record in records if record}
    if not all(record and record.final for record in records):
        devices.add(describe(specs[0].device).device)
    if len(devices) > 1:
        raise UserError(
            f"the runs of this sweep would differ in device: {' and '.join(sorted(devices))}; run "
            "it on one of them, or give a --store without the runs of the other"
        )
