"""Runs from arguments: specified, made if they are missing, and their records."""

import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from harness import baselines, engines, environment, grid, recipes
from harness.costs import sweep
from harness.data import forget, restore
from harness.environment import covered
from harness.events import require_tensorboard, write_events
from harness.interrupts import continued
from harness.model import build_model, require_fit, trainable
from harness.questions import (
    NONE,
    RATE,
    SHARED,
    Settings,
    Texts,
    composed,
    name_of,
    question_of,
    require_used,
    spec_of,
)
from harness.records.cost import REFERENCE, CostRecord
from harness.records.fields import Device
from harness.records.files import require_writable
from harness.records.frame import best_trials_first, is_newest, of_records
from harness.records.record import Record
from harness.records.spec import Question, RunSpec
from harness.records.store import BaselineStore, Store
from harness.runner import reason_of
from zoo.composition import Composition
from zoo.contract import Unsupported
from zoo.registry import UserError, Value

LOG = logging.getLogger(__name__)
USUAL_TASK, SEEDS, TUNED_SEEDS = "listops", (0,), (1, 2, 3, 4, 5)  # Defaults
Outcomes = list[tuple[Record, bool]]  # The record of each run, and whether it was made now
WIDTH = "model.feed_forward"  # The field that makes models of equal size
TOLERANCE = 0.01  # Relative difference of parameters that remains, at most
TASK = "task"  # Owner of the options of the task of a sweep, in place of its name
TRIAL_SEED = 0  # The seed of all trials; final runs have other seeds
MOST_BEYOND = 3  # Trials of a row at rates beyond its grid, at most
MOST_SPREAD = 4.0  # The points by which the scores of seeds differ without more seeds
MOST_VALUES = 1_000  # Values of the field of a sweep, at most


@dataclass(frozen=True, kw_only=True)
class Execution:
    store: Path = Path("runs")
    resources: engines.Resources = field(default_factory=engines.Resources)
    cost: bool = True
    rerun: bool = False
    keep_outdated: bool = False  # Whether records of earlier code are results
    keep_checkpoints: bool = False
    baselines: bool = False  # Whether to fit baselines of the tasks after the runs
    checks: bool = True  # Whether variants of other packages must pass theirs before a suite
    tensorboard: Path | None = None

    @property
    def of_costs(self) -> dict[str, Any]:
        # Arguments of `harness.costs.sweep.measure_all`.
        return {"rerun": self.rerun, "keep_outdated": self.keep_outdated}


def compare(
    attention: Sequence[str], task: Sequence[str], how: Execution, *,
    seeds: Sequence[int] | None = None, tune: bool = False, over: Texts = NONE, match: str = "",
    **question: Any,
) -> tuple[Outcomes, list[CostRecord], bool]:  # fmt: skip
    # See `harness.run` and `question_of`. Returns runs, costs, and whether all were made.
    if folder := how.tensorboard:
        require_writable(folder, str(folder), "give another --tensorboard")
        require_tensorboard()
    forget()
    if question.get("grid") and not tune:
        raise UserError("--grid is the grid of --tune; give --tune as well")
    if over and tune:
        raise UserError("--over and --tune are not possible at once; leave one of them out")
    if seeds is None:
        seeds = TUNED_SEEDS if tune else SEEDS
    if tune and TRIAL_SEED in seeds:
        raise UserError(
            f"seed {TRIAL_SEED} chooses the point of the grid, so it is not counted; give "
            "for example --seeds 1,2,3"
        )
    question |= {"device": how.resources.device, "tune": tune, "match": match}
    rows = _rows(attention, task, seeds, over, **question)
    if tune:
        outcomes, count = choose(rows, seeds, how)
    else:
        specs = [spec for row in rows for spec in row]
        outcomes, count = execute(specs, how), len(specs)
    records = [record for record, _ in outcomes]
    if how.tensorboard:
        write_events(records, how.tensorboard)
    if how.baselines:
        fit_baselines(records, how.store)
    costs = sweep.measure_runs(records, Store(how.store), **how.of_costs) if how.cost else []
    are_complete = len(records) == count and all(record.status == "ok" for record in records)
    return outcomes, costs, are_complete and sweep.is_complete(costs)


def _rows(
    attentions: Sequence[str], tasks: Sequence[str], seeds: Sequence[int], over: Texts, *,
    budget: str = "laptop", settings: Settings = NONE, **question: Any,
) -> list[list[RunSpec]]:  # fmt: skip
    recipe, names = recipes.find(budget), set[str]()
    usual = recipe.question.task if recipe.question else USUAL_TASK
    found: list[tuple[str, list[tuple[Question, Settings]]]] = []
    for task, attention in product(tasks or [usual], attentions):
        swept: Sequence[Settings] = [settings]
        for path, values in over.items():
            swept = varied(settings, path, values, task, attention)
        found.append((attention, [(question_of(task, recipe, s, **question), s) for s in swept]))
        for of, changes in found[-1][1]:
            names |= {*composed(of.variants, attention, changes)[0].names}
    require_used(settings, {*SHARED, *names, *(of.task.name for _, row in found for of, _ in row)})
    # Data are read last, after all arguments are checked.
    rows, device = list[list[RunSpec]](), question["device"]
    for attention, row in found:
        rows.append([])
        for of, changes in row:
            width = matched(of, attention, changes, device) if of.match else {}
            rows[-1] += trials(of, attention, changes, device, width) if of.grid else [
                spec_of(of, attention, changes, seed=seed, device=device, values=width)
                for seed in seeds
            ]  # fmt: skip
    for (path, values), row in product(over.items(), rows):
        if len({spec.id for spec in row[:: len(seeds)]}) < 2:
            raise UserError(
                f"--over {path}={','.join(values)} gives one value, but runs of a sweep differ in "
                "it; give two values or more that differ, or this one with --set"
            )
    return rows


def execute(specs: Sequence[RunSpec], how: Execution) -> Outcomes:
    environment.keep_freed_memory()
    store = Store(how.store)
    checked_runs = grid.check(specs, store, rerun=how.rerun, keep_outdated=how.keep_outdated)
    store.require_writable()
    for line in covered(sorted({name for run in checked_runs for name in run.spec.variants})):
        LOG.info(line)
    with continued(by_same_command=not how.rerun):
        return grid.run_all(
            checked_runs, store, how.resources, rerun=how.rerun,
            keep_checkpoints=how.keep_checkpoints,
        )  # fmt: skip


def choose(
    rows: Sequence[Sequence[RunSpec]], seeds: Sequence[int], how: Execution,
    of_suite: bool = False,
) -> tuple[Outcomes, int]:  # fmt: skip
    # Returns records at the chosen points, trials of rows without any, and the count if complete.
    of_rows: list[list[Record]] = [[] for _ in rows]
    missing = [due(row, []) if of_suite else [*row] for row in rows]
    while any(missing):
        made = execute([trial for row in missing for trial in row], how)
        by_id = {record.spec.id: record for record, _ in made}
        for records, row, of_row in zip(of_rows, missing, rows, strict=True):
            new = [by_id[trial.id] for trial in row if trial.id in by_id]
            records += new
            row[:] = due(of_row, records) if of_suite and new else []
    due_finals, ended = [], []
    for records in of_rows:
        if chosen := best(records):
            due_finals += finals(chosen.spec, seeds)
        else:
            ended += ((trial, False) for trial in records)
        if records:
            LOG.info("%s on %s, on dev:", records[0].spec.attention, records[0].spec.task.key)
        for record in records:
            point = ", ".join(f"{path}={value}" for path, value in record.spec.values.items())
            end = record.reason or record.status
            result = record.selection.sentence(record.final.dev) if record.final else end
            LOG.info("  %s: %s%s", point, result, " (chosen)" * (record is chosen))
    outcomes = execute(due_finals, how) if due_finals else []
    return [*outcomes, *ended], len(rows) * len(seeds)


def fit_baselines(records: Sequence[Record], folder: Path) -> bool:
    # Failures are warnings. Returns whether the store has all baselines.
    store, complete = BaselineStore.within(folder), True
    finished = [record for record in records if record.final]
    found = of_records(finished)
    latest = {*found.loc[is_newest(found), "id"]} if finished else ()
    specs = {run.spec.task.file_name: run.spec.task for run in finished if run.spec.id in latest}
    for spec in specs.values():
        try:
            with continued():
                baselines.fit(spec, store)
        except Exception as error:
            # Errors of plug-ins and libraries: the records are complete without baselines.
            complete = False
            warnings.warn(f"no baselines of {spec.key}: {reason_of(error)}", stacklevel=2)
    return complete


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
