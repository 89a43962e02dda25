"""The runs that somebody asks for: specified, made where they are missing, and their records."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from harness import baselines, checks, engines, environment, grid, recipes, tuning
from harness.costs import sweep
from harness.costs.plan import CostRequest, measurements
from harness.data import data_of, forget
from harness.events import require_tensorboard, write_events
from harness.interrupts import continued
from harness.memory import matched
from harness.provenance import covered
from harness.questions import Fixed, Settings, composed, question_of, require_used, spec_of
from harness.records.cost import CostRecord
from harness.records.fields import Device
from harness.records.files import require_writable
from harness.records.frame import newest, of_costs, of_records
from harness.records.record import Record
from harness.records.spec import Question, RunSpec
from harness.records.store import BaselineStore, Store
from harness.runner import reason_of
from zoo.registry import UserError

Outcomes = list[tuple[Record, bool]]  # The record of each run, and whether it was made now

TASK = "listops"

# The seeds where none is given: of runs, and of runs at the chosen point of a grid.
SEEDS, TUNED_SEEDS = (0,), (1, 2, 3, 4, 5)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Functions that show runs in progress; by default they show nothing.

    `trials` gets the records of the trials of a row, and the one that is chosen.
    """

    line: Callable[[str], None] = lambda text: None
    trials: Callable[[Sequence[Record], Record | None], None] = lambda records, chosen: None
    grid: Callable[[], AbstractContextManager[Any]] = lambda: nullcontext(grid.NoView())
    fitting: Callable[[str], AbstractContextManager[baselines.OnStep]] = lambda name: nullcontext(
        lambda step, done, total: None
    )
    cost: Callable[[CostRecord, bool], None] = lambda record, new: None
    check: checks.Show = lambda *result: None


@dataclass(frozen=True, kw_only=True)
class Execution:
    """The way in which runs are made; see the options of `harness run`.

    Attributes:
        seconds: of sampling for a measurement, about; `timeout` of a measurement, at most.
        keep_outdated: whether records of earlier code are results.
        baselines: whether baselines of the tasks are fitted after the runs.
    """

    store: Path = Path("runs")
    resources: engines.Resources = field(default_factory=engines.Resources)
    cost: bool = True
    seconds: float = sweep.SECONDS
    timeout: float = sweep.TIMEOUT
    rerun: bool = False
    keep_outdated: bool = False
    keep_checkpoints: bool = False
    baselines: bool = False
    tensorboard: Path | None = None
    shown: Shown = field(default_factory=Shown)

    @property
    def of_costs(self) -> dict[str, Any]:
        """The arguments of `harness.costs.sweep.measure_all`."""
        names = ("seconds", "timeout", "rerun", "keep_outdated")
        return {name: getattr(self, name) for name in names} | {"show": self.shown.cost}


@dataclass(frozen=True, kw_only=True)
class Comparison(Fixed):
    """Runs of every variant on every task with every seed; see `harness.run`.

    Attributes:
        budget: the recipe.
        over: a field with the values at which each run is made; empty for none.
    """

    attention: Sequence[str]
    task: Sequence[str] = ()
    seeds: Sequence[int] | None = None
    budget: str = "laptop"
    settings: Settings = field(default_factory=dict)
    device: str = "auto"
    over: Mapping[str, Sequence[str]] = field(default_factory=dict)


def compare(comparison: Comparison, how: Execution) -> tuple[Outcomes, list[CostRecord], bool]:
    """Make the runs of a comparison, and their costs; return them, and whether all were made."""
    if folder := how.tensorboard:
        require_writable(folder, str(folder), "give another --tensorboard")
        require_tensorboard()
    outcomes, count = make(comparison, how)
    records = [record for record, _ in outcomes]
    if how.tensorboard:
        write_events(records, how.tensorboard)
    if how.baselines:
        fit_baselines(records, how.store, how.shown)
    costs = sweep.measure_runs(records, Store(how.store), **how.of_costs) if how.cost else []
    are_complete = len(records) == count and all(record.status == "ok" for record in records)
    return outcomes, costs, are_complete and sweep.is_complete(costs)


def make(comparison: Comparison, how: Execution) -> tuple[Outcomes, int]:
    forget()
    if comparison.grid and not comparison.tune:
        raise UserError("--grid is the grid of --tune; give --tune as well")
    if comparison.over and comparison.tune:
        raise UserError("--over and --tune are not possible at once; leave one of them out")
    if comparison.match not in ("", "parameters"):
        raise UserError(f"--match {comparison.match!r} is not possible; give parameters")
    usual = TUNED_SEEDS if comparison.tune else SEEDS
    seeds = usual if comparison.seeds is None else comparison.seeds
    if comparison.tune and tuning.TRIAL_SEED in seeds:
        raise UserError(
            f"seed {tuning.TRIAL_SEED} chooses the point of the grid, so it is not counted; give "
            "for example --seeds 1,2,3"
        )
    rows = _rows(comparison, seeds, how.shown.line)
    if comparison.tune:
        return tune(rows, seeds, how)
    specs = [spec for row in rows for spec in row]
    if comparison.over:
        tuning.require_one_processor(specs, Store(how.store))
    return execute(specs, how), len(specs)


def _rows(
    comparison: Comparison, seeds: Sequence[int], announce: Callable[[str], None]
) -> list[list[RunSpec]]:
    device = environment.pick_device(comparison.device)
    recipe, fixed = recipes.find(comparison.budget), replace(comparison, device=device)
    usual = recipe.question.task if recipe.question else TASK
    names: set[str] = set()
    found: list[tuple[str, list[tuple[Question, Settings]]]] = []
    for task, attention in product(comparison.task or [usual], comparison.attention):
        varied: Sequence[Settings] = [comparison.settings]
        for path, values in comparison.over.items():
            varied = tuning.varied(comparison.settings, path, values, task, attention)
        row = [(question_of(task, recipe, of, fixed), of) for of in varied]
        for question, settings in row:
            names |= {*composed(question.variants, attention, settings)[0].names}
        found.append((attention, row))
    require_used(comparison.settings, [question for _, row in found for question, _ in row], names)
    # Data are read when everything is known to be possible.
    return [_specs(attention, row, comparison, seeds, device, announce) for attention, row in found]


def _specs(
    attention: str, row: Sequence[tuple[Question, Settings]], comparison: Comparison,
    seeds: Sequence[int], device: Device, announce: Callable[[str], None],
) -> list[RunSpec]:  # fmt: skip
    specs: list[RunSpec] = []
    for question, settings in row:
        width = matched(question, attention, settings, device) if comparison.match else {}
        if comparison.tune:
            specs += tuning.trials(question, attention, settings, device, width, announce)
            continue
        specs += (
            spec_of(question, attention, settings, seed=seed, device=device, values=width,
                    announce=announce)
            for seed in seeds
        )  # fmt: skip
    for path, values in comparison.over.items():
        tuning.require_several(specs[:: len(seeds)], path, values)
    return specs


def execute(specs: Sequence[RunSpec], how: Execution) -> Outcomes:
    environment.keep_freed_memory()
    store = Store(how.store)
    checked_runs = grid.check(specs, store, rerun=how.rerun, keep_outdated=how.keep_outdated)
    store.require_writable()
    for line in covered(sorted({name for run in checked_runs for name in run.spec.variants})):
        how.shown.line(line)
    with how.shown.grid() as view, continued(by_same_command=not how.rerun):
        return grid.run_all(
            checked_runs, store, how.resources, view, rerun=how.rerun,
            keep_checkpoints=how.keep_checkpoints,
        )  # fmt: skip


def tune(
    rows: Sequence[Sequence[RunSpec]], seeds: Sequence[int], how: Execution,
    of_suite: bool = False,
) -> tuple[Outcomes, int]:  # fmt: skip
    # With `of_suite` rows have the trials of `tuning.due`. Return the records at the chosen points,
    # and the trials of rows without a finished one; and their number if none is skipped or fails.
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
        if records:
            how.shown.trials(records, chosen)
    outcomes = execute(finals, how) if finals else []
    return [*outcomes, *ended], len(rows) * len(seeds)


def measured(request: CostRequest, how: Execution) -> pd.DataFrame:
    """Make the measurements of a sweep; without variants, repeat those of a store."""
    if request.attentions:
        specs = measurements(request)
    else:
        specs = sweep.present(how.store, request.device, rerun=how.rerun)
    return of_costs(sweep.measure_all(specs, how.store, **how.of_costs))


def fit_baselines(records: Sequence[Record], folder: Path, shown: Shown) -> bool:
    """Fit the baselines of each task of finished records that the store in `folder` lacks.

    Those that cannot be fitted are warnings. Return whether the store now has all of them.
    """
    store, complete = BaselineStore.within(folder), True
    finished = [record for record in records if record.final]
    latest = {*newest(of_records(finished)).get("id", ())}
    specs = {run.spec.task.file_name: run.spec.task for run in finished if run.spec.id in latest}
    for spec in specs.values():
        try:
            with shown.fitting(f"baselines of {spec.key}") as on_step, continued():
                baselines.fit(spec, data_of, store, on_step)
        except Exception as error:
            # Of a plug-in or a library: the records are complete without them.
            complete = False
            warnings.warn(f"no baselines of {spec.key}: {reason_of(error)}", stacklevel=2)
    return complete
