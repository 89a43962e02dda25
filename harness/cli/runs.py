"""The runs that the options of a command name, tuned where they are to be, and their records."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness import baselines, environment, grid, plan, recipes, tuning
from harness.cli import progress
from harness.cli.arguments import Runs, attentions_in, names_in, seeds_in, settings_of, values_in
from harness.engines import create
from harness.interrupts import continued
from harness.plan import Draft, Plan, Request
from harness.records import frame
from harness.records.record import Record
from harness.records.store import BaselineStore, Store
from harness.runner import reason_of
from reports.questions import failure, lines, newest
from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.cli.run import RunOptions

Outcomes = list[tuple[Record, bool]]
"""The record of each run, and whether it was made now."""

TASK = "listops"

SEEDS = "1-5"
"""The seeds of the runs at the chosen point of a grid."""


def requests(runs: Runs) -> list[Request]:
    """A request for each task, variant and seed; the seed is 0 where none is given.

    Without a task it is `TASK`, or where `budget` is the recipe of a question, the question's.

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
    axes = names, attentions_in(runs.attention or []), seeds
    precision = environment.pick_precision(runs.precision, device)
    return [
        Request(
            task=task, attention=attention, seed=seed, recipe=runs.budget, device=device,
            positions=runs.positions or "learned", settings=settings_of(runs.set_),
            precision=precision, compiled=runs.compile,
        )
        for task, attention, seed in product(*axes)
    ]  # fmt: skip


def require_used(drafts: Sequence[Draft]) -> None:
    """Reject settings that none of the runs uses.

    Raises:
        UserError: the owner is neither a variant nor a task of a run, nor train or model.
    """
    owners = {"model", "train"}
    for draft in drafts:
        owners |= {draft.spec.task.name, *draft.spec.options}
    for owner in {owner for draft in drafts for owner in draft.request.settings} - owners:
        raise UserError(
            f"--set {owner}: no run uses {owner!r}; give one of {', '.join(sorted(owners))}"
        )


def execute(plans: Sequence[Plan], options: "RunOptions") -> Outcomes:
    """Check every run, then make those without a final record; see `harness.grid.run_all`."""
    environment.keep_freed_memory()
    store = Store(options.store)
    runnable = grid.check(plans, store)
    store.require_writable()
    with (
        progress.bars(progress.Output()) as bar,
        continued(by_same_command=not options.rerun),
    ):
        view = progress.GridView(bar, progress.Output(stderr=True), attrgetter("file_name"))
        pool = create(options.resources(), options.store, view.callback)
        return grid.run_all(
            runnable, store, pool, view, rerun=options.rerun, cost=options.cost,
            keep_outdated=options.keep_outdated, keep_checkpoints=options.keep_checkpoints,
        )  # fmt: skip


def tune(
    drafts: Sequence[Draft],
    seeds: Sequence[int],
    options: "RunOptions",
    needs_seeds: Callable[[Record], bool] = lambda chosen: True,
) -> tuple[Outcomes, int]:
    """Make the trials of each row, then its runs at the chosen point.

    Args:
        drafts: a run of each row.
        seeds: of the runs at the chosen point.
        options: how the runs are made, and their `grid`.
        needs_seeds: whether a row has further seeds, by its chosen trial; called after all trials.

    Returns:
        The records of the runs at the chosen points, and of the trials of rows without them: the
        chosen one, or all where none finished; and their number if none is skipped or fails.

    Raises:
        UserError: seeds or a grid are malformed or not possible; `harness.tuning.row` raises it.
    """
    tuning.require_other_seeds(seeds)
    texts = values_in("--grid", options.grid)
    rows = [tuning.row(draft, texts, announce=typer.echo) for draft in drafts]
    trials = {
        record.spec.id: record
        for record, _ in execute([trial for row in rows for trial in row.trials], options)
    }
    finals, ended, expected = [], [], 0
    for row in rows:
        chosen = row.best(trials)
        more = chosen is None or needs_seeds(chosen)
        expected += len(seeds) if more else 1
        if chosen is None:
            ended += row.records(trials)
        elif more:
            finals += row.finals(chosen.spec, seeds)
        else:
            ended.append(chosen)
        _show(row, trials)
    outcomes = execute(finals, options) if finals else []
    return [*outcomes, *((trial, False) for trial in ended)], expected


def _show(row: tuning.Row, trials: Mapping[str, Record]) -> None:
    """Print the score on dev at each point, and the point that is chosen."""
    records, chosen, spec = row.records(trials), row.best(trials), row.trials[0].spec
    if not records:
        return
    typer.echo(f"{spec.attention} on {spec.task.key}, on dev:")
    for record, line in zip(records, lines(frame.of_records(records)), strict=True):
        grid_point = ", ".join(f"{path}={value}" for path, value in record.spec.point.items())
        result = record.selection.sentence(record.final.dev) if record.final else failure(line)
        typer.echo(f"  {grid_point}: {result}{' (chosen)' if record is chosen else ''}")


def fit_baselines(records: Sequence[Record], folder: Path) -> bool:
    """Fit the baselines of each task of finished records that the store in `folder` lacks.

    Those that cannot be fitted are warnings. Return whether the store now has all of them.
    """
    store, complete = BaselineStore.within(folder), True
    latest = {*newest(frame.of_records(records)).get("id", ())}
    finished = [run.spec.task for run in records if run.final and run.spec.id in latest]
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
