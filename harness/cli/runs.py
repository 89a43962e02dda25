"""The runs that the options of a command name, and their records."""

import warnings
from collections.abc import Callable, Sequence
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from harness.cli.arguments import Runs, attentions_in, names_in, seeds_in, settings_of
from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.engines import Resources
    from harness.plan import Plan, Request
    from harness.records.record import Record

TASK = "listops"


def requests(runs: Runs) -> "list[Request]":
    """A request for each task, variant and seed; the seed is 0 where none is given.

    Without a task it is the task of the question whose recipe `budget` is, or `TASK`.

    Raises:
        UserError: an option is malformed, or is not possible on this machine.
    """
    from harness import environment, recipes
    from harness.plan import Request

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
    requests: "Sequence[Request]",
    precision: str,
    folder: Path,
    resources: "Resources",
    announce: Callable[[str], None] = typer.echo,
) -> "list[Request]":
    """The requests; where `precision` is `auto`, each in its faster one: `harness.precision`.

    A question of a suite has a precision.
    """
    import torch

    from harness import recipes
    from harness.environment import keep_freed_memory, use_threads
    from harness.precision import faster
    from harness.records.store import Store

    if precision != "auto" or all(recipes.find(request.recipe).question for request in requests):
        return list(requests)
    # Before the first trial: it rejects every wrong name and value.
    resolve(requests)
    keep_freed_memory()
    share = max(1, torch.get_num_threads() // max(1, resources.workers))
    with use_threads(resources.threads or share):
        return [faster(request, Store(folder), announce) for request in requests]


def resolve(requests: "Sequence[Request]") -> "list[Plan]":
    """The plans of requests.

    Raises:
        UserError: `harness.plan.resolve` raises it.
    """
    from harness import plan

    return [plan.resolve(request, announce=typer.echo) for request in requests]


def require_valid(requests: "Sequence[Request]") -> None:
    """Reject what is wrong in any request, before the first stage: nothing is read or timed.

    Raises:
        UserError: an option is unknown, ill-typed or out of range, or one has an owner that is
            neither a variant nor a task of a run, nor train or model.
    """
    from harness import plan

    owners = set[str]().union(*map(plan.owners, requests))
    for owner in {owner for request in requests for owner in request.settings} - owners:
        raise UserError(
            f"--set {owner}: no run uses {owner!r}; give one of {', '.join(sorted(owners))}"
        )


def execute(
    plans: "Sequence[Plan]",
    folder: Path,
    *,
    rerun: bool = False,
    keep: bool = False,
    cost: bool = True,
    resources: "Resources | None" = None,
) -> "list[tuple[Record, bool]]":
    """Check every run, then make those without a final record; see `harness.grid.run_all`.

    They are made in this process, or where `resources` says.
    """
    from harness import grid
    from harness.cli import progress
    from harness.engines import Resources, create
    from harness.environment import keep_freed_memory
    from harness.interrupts import continued
    from harness.records.store import Store

    keep_freed_memory()
    store = Store(folder)
    runnable = grid.check(plans, store)
    store.require_writable()
    shown = progress.grid(progress.Output(), progress.Output(stderr=True), attrgetter("file_name"))
    with shown as view, continued(by_same_command=not rerun):
        pool = create(resources or Resources(), folder, view.callback)
        return grid.run_all(runnable, store, pool, view, rerun=rerun, keep=keep, cost=cost)


def fit_baselines(records: "Sequence[Record]", folder: Path) -> bool:
    """Fit the baselines of each task of finished records that the store in `folder` lacks.

    Those that cannot be fitted are warnings.

    Returns:
        Whether the store now has all of them.
    """
    from harness import baselines
    from harness.cli.progress import Output, fitting
    from harness.interrupts import continued
    from harness.plan import recorded_data
    from harness.records import frame
    from harness.records.store import BaselineStore
    from harness.runner import reason_of
    from reports.questions import newest

    store, complete = BaselineStore.within(folder), True
    shown = {*newest(frame.of_records(records)).get("id", ())}
    finished = [run.spec.task for run in records if run.final and run.spec.id in shown]
    specs = {spec.file_name: spec for spec in finished}
    for spec in specs.values():
        try:
            with fitting(Output(), f"baselines of {spec.key}") as on_step, continued():
                baselines.fit(spec, recorded_data, store, on_step)
        except Exception as error:
            # Of a plug-in or a library: the records are complete without them.
            complete = False
            warnings.warn(f"no baselines of {spec.key}: {reason_of(error)}", stacklevel=2)
    return complete
