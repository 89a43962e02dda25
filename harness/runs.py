"""Runs from arguments: specified, made if they are missing, and their records."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from harness import baselines, engines, environment, grid, recipes, tuning
from harness.costs import sweep
from harness.data import forget
from harness.events import require_tensorboard, write_events
from harness.interrupts import continued
from harness.provenance import covered
from harness.questions import (
    NONE,
    SHARED,
    Settings,
    Texts,
    composed,
    question_of,
    require_used,
    spec_of,
)
from harness.records.cost import CostRecord
from harness.records.files import require_writable
from harness.records.frame import newest, of_records
from harness.records.record import Record
from harness.records.spec import Question, RunSpec
from harness.records.store import BaselineStore, Store
from harness.runner import reason_of
from zoo.registry import UserError

LOG = logging.getLogger(__name__)
TASK, SEEDS, TUNED_SEEDS = "listops", (0,), (1, 2, 3, 4, 5)  # Defaults
Outcomes = list[tuple[Record, bool]]  # The record of each run, and whether it was made now


@dataclass(frozen=True, kw_only=True)
class Execution:
    """The execution of runs; see the options of `harness run`."""

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
    # See `harness.run`. `over` has values by path of a field; `question` has arguments of
    # `harness.questions.question_of`. Returns runs, costs, and whether all were made.
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
    if tune and tuning.TRIAL_SEED in seeds:
        raise UserError(
            f"seed {tuning.TRIAL_SEED} chooses the point of the grid, so it is not counted; give "
            "for example --seeds 1,2,3"
        )
    question |= {"device": how.resources.device, "tune": tune, "match": match}
    rows = _rows(attention, task, seeds, over, **question)
    if tune:
        outcomes, count = choose(rows, seeds, how)
    else:
        specs = [spec for row in rows for spec in row]
        if over:
            tuning.require_one_processor(specs, Store(how.store))
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
    usual = recipe.question.task if recipe.question else TASK
    found: list[tuple[str, list[tuple[Question, Settings]]]] = []
    for task, attention in product(tasks or [usual], attentions):
        varied: Sequence[Settings] = [settings]
        for path, values in over.items():
            varied = tuning.varied(settings, path, values, task, attention)
        found.append((attention, [(question_of(task, recipe, s, **question), s) for s in varied]))
        for of, changes in found[-1][1]:
            names |= {*composed(of.variants, attention, changes)[0].names}
    require_used(settings, {*SHARED, *names, *(of.task.name for _, row in found for of, _ in row)})
    # Data are read last, after all arguments are checked.
    rows = [
        [spec for of, changes in row
         for spec in _specs(of, attention, changes, seeds, question["device"])]
        for attention, row in found
    ]  # fmt: skip
    for (path, values), row in product(over.items(), rows):
        tuning.require_several(row[:: len(seeds)], path, values)
    return rows


def _specs(
    question: Question, attention: str, settings: Settings, seeds: Sequence[int], device: Any
) -> Iterator[RunSpec]:
    width = tuning.matched(question, attention, settings, device) if question.match else {}
    if question.grid:
        yield from tuning.trials(question, attention, settings, device, width)
        return
    for seed in seeds:
        yield spec_of(question, attention, settings, seed=seed, device=device, values=width)


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
    # A suite has the trials of `tuning.due`. Returns the records at the chosen points, the trials
    # of rows without a finished one, and the number of records of complete rows.
    of_rows: list[list[Record]] = [[] for _ in rows]
    missing = [tuning.due(row, []) if of_suite else [*row] for row in rows]
    while any(missing):
        made = execute([trial for row in missing for trial in row], how)
        trials = {record.spec.id: record for record, _ in made}
        for records, row, of_row in zip(of_rows, missing, rows, strict=True):
            new = [trials[trial.id] for trial in row if trial.id in trials]
            records += new
            row[:] = tuning.due(of_row, records) if of_suite and new else []
    finals, ended = [], []
    for records in of_rows:
        if chosen := tuning.best(records):
            finals += tuning.finals(chosen.spec, seeds)
        else:
            ended += ((trial, False) for trial in records)
        for line in tuning.lines_of(records, chosen):
            LOG.info(line)
    outcomes = execute(finals, how) if finals else []
    return [*outcomes, *ended], len(rows) * len(seeds)


def fit_baselines(records: Sequence[Record], folder: Path) -> bool:
    # Fits missing baselines of the tasks of finished records. Failures are warnings. Returns
    # whether the store has all of them.
    store, complete = BaselineStore.within(folder), True
    finished = [record for record in records if record.final]
    latest = {*newest(of_records(finished)).get("id", ())}
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
