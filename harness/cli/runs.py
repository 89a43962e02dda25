"""The runs that the options of a command name, tuned where they are to be, and their records."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
import typer

from harness import baselines, environment, grid, plan, recipes, tuning
from harness.cli import progress
from harness.cli.arguments import Runs, attentions_in, names_in, seeds_in, settings_of, values_in
from harness.engines import Resources, create
from harness.interrupts import continued
from harness.plan import Plan, Request
from harness.precision import faster
from harness.records import frame
from harness.records.record import Record
from harness.records.store import BaselineStore, Store
from harness.runner import reason_of
from reports.questions import failure, lines, newest
from zoo.registry import UserError

Outcomes = list[tuple[Record, bool]]
"""The record of each run, and whether it was made now."""

TASK = "listops"

SEEDS = "1-5"
"""The seeds of the runs at the chosen point of a grid."""


def requests(runs: Runs) -> list[Request]:
    """A request for each task, variant and seed; the seed is 0 where none is given.

    Without a task it is the task of the question whose recipe `budget` is, or `TASK`.

    Raises:
        UserError: an option is malformed, or is not possible on this machine.
    """
    device = environment.pick_device(runs.device)
    question = recipes.find(runs.budget).question
    for name in ("positions", "precision") if question else ():
        value, fixed = getattr(runs, name), getattr(question, name)
        if value not in ("", "auto", fixed):
            raise UserError(
                f"--{name} {value} is not possible: {runs.budget} has {fixed}; leave it out"
            )
    names = names_in(runs.task or []) or [question.task if question else TASK]
    seeds = seeds_in("0" if runs.seeds is None else runs.seeds)
    kind: Any = device.type
    axes = names, attentions_in(runs.attention or []), seeds
    precision = environment.pick_precision(runs.precision, device)
    return [
        Request(
            task=task, attention=attention, seed=seed, recipe=runs.budget, device=kind,
            positions=runs.positions or "learned", settings=settings_of(runs.set_),
            precision=precision,
            compiled=kind == "cuda" if runs.compile is None else runs.compile,
        )
        for task, attention, seed in product(*axes)
    ]  # fmt: skip


def in_faster_precision(
    requests: Sequence[Request], precision: str, folder: Path, resources: Resources
) -> list[Request]:
    """The requests; where `precision` is `auto`, each in its faster one: `harness.precision`.

    A question of a suite has a precision.
    """
    if precision != "auto" or all(recipes.find(request.recipe).question for request in requests):
        return list(requests)
    # Before the first trial: it rejects every wrong name and value.
    resolve(requests)
    environment.keep_freed_memory()
    share = max(1, torch.get_num_threads() // max(1, resources.workers))
    with environment.use_threads(resources.threads or share):
        return [faster(request, Store(folder), typer.echo) for request in requests]


def resolve(requests: Sequence[Request]) -> list[Plan]:
    """The plans of requests; what they change is printed.

    Raises:
        UserError: `harness.plan.resolve` raises it.
    """
    return [plan.resolve(request, announce=typer.echo) for request in requests]


def require_valid(requests: Sequence[Request]) -> None:
    """Reject what is wrong in any request, before the first stage: nothing is read or timed.

    Raises:
        UserError: an option is unknown, ill-typed or out of range, or one has an owner that is
            neither a variant nor a task of a run, nor train or model.
    """
    owners = set[str]().union(*map(plan.owners, requests))
    for owner in {owner for request in requests for owner in request.settings} - owners:
        raise UserError(
            f"--set {owner}: no run uses {owner!r}; give one of {', '.join(sorted(owners))}"
        )


def execute(
    plans: Sequence[Plan], folder: Path, *, rerun: bool = False, keep: bool = False,
    cost: bool = True, resources: Resources | None = None,
) -> Outcomes:  # fmt: skip
    """Check every run, then make those without a final record; see `harness.grid.run_all`.

    They are made in this process, or where `resources` says.
    """
    environment.keep_freed_memory()
    store = Store(folder)
    runnable = grid.check(plans, store)
    store.require_writable()
    with progress.bars(progress.Output()) as bar, continued(by_same_command=not rerun):
        view = progress.GridView(bar, progress.Output(stderr=True), attrgetter("file_name"))
        pool = create(resources or Resources(), folder, view.callback)
        return grid.run_all(runnable, store, pool, view, rerun=rerun, keep=keep, cost=cost)


def tune(
    requests: Sequence[Request],
    grid_texts: Sequence[str] | None,
    seeds: str | None,
    execute: Callable[[Sequence[Plan]], Outcomes],
    needs_seeds: Callable[[Record], bool] = lambda chosen: True,
) -> tuple[Outcomes, int]:
    """Make the trials of a row for each request, then its runs at the chosen point.

    Args:
        requests: a run of each row.
        grid_texts: of `--grid`.
        seeds: of the runs at the chosen point; `SEEDS` if None.
        execute: runs plans; returns a record of each plan that can run, and whether it is new.
        needs_seeds: whether a row has further seeds, by its chosen trial; called after all trials.

    Returns:
        The records of the runs at the chosen points, and of the trials of rows without them: the
        chosen one, or all where none finished; and their number if none is skipped or fails.

    Raises:
        UserError: seeds or a grid are malformed or not possible; `harness.tuning.row` raises it.
    """
    numbers = seeds_in(SEEDS if seeds is None else seeds)
    tuning.require_other_seeds(numbers)
    texts = values_in("--grid", grid_texts)
    rows = [tuning.row(request, texts, announce=typer.echo) for request in requests]
    trials = {r.spec.id: r for r, _ in execute([p for one in rows for p in one.trials])}
    finals, ended, expected = [], [], 0
    for tuned in rows:
        chosen = tuned.best(trials)
        more = chosen is None or needs_seeds(chosen)
        expected += len(numbers) if more else 1
        if chosen is None:
            ended += [trials[p.spec.id] for p in tuned.trials if p.spec.id in trials]
        elif more:
            finals += tuned.finals(chosen.spec, numbers)
        else:
            ended.append(chosen)
        _show(tuned, trials)
    outcomes = execute(finals) if finals else []
    return [*outcomes, *((trial, False) for trial in ended)], expected


def _show(row: tuning.Row, trials: Mapping[str, Record]) -> None:
    """Print the score on dev at each point, and the point that is chosen."""
    records = [trials[p.spec.id] for p in row.trials if p.spec.id in trials]
    if not records:
        return
    chosen = row.best(trials)
    typer.echo(f"{row.request.attention} on {row.trials[0].spec.task.key}, on dev:")
    for record, line in zip(records, lines(frame.of_records(records)), strict=True):
        grid_point = ", ".join(f"{path}={value}" for path, value in record.spec.point.items())
        result = record.selection.sentence(record.final.dev) if record.final else failure(line)
        typer.echo(f"  {grid_point}: {result}{' (chosen)' if record is chosen else ''}")


def fit_baselines(records: Sequence[Record], folder: Path) -> bool:
    """Fit the baselines of each task of finished records that the store in `folder` lacks.

    Those that cannot be fitted are warnings. Return whether the store now has all of them.
    """
    store, complete = BaselineStore.within(folder), True
    shown = {*newest(frame.of_records(records)).get("id", ())}
    finished = [run.spec.task for run in records if run.final and run.spec.id in shown]
    specs = {spec.file_name: spec for spec in finished}
    for spec in specs.values():
        try:
            with progress.fitting(f"baselines of {spec.key}") as on_step, continued():
                baselines.fit(spec, plan.recorded_data, store, on_step)
        except Exception as error:
            # Of a plug-in or a library: the records are complete without them.
            complete = False
            warnings.warn(f"no baselines of {spec.key}: {reason_of(error)}", stacklevel=2)
    return complete
