"""The cells of a grid from the options of a command, and their records."""

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from harness.cli.arguments import seeds_in, settings_of
from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.engines.choice import Resources
    from harness.plan import Plan, Request
    from harness.records.record import Record


TASK = "listops"


def requests(
    tasks: Sequence[str],
    attentions: Sequence[str],
    seeds: str,
    *,
    budget: str,
    device: str,
    precision: str,
    set_: Sequence[str] | None,
    positions: str = "",
    compiled: bool | None = None,
    **fields: Any,
) -> "list[Request]":
    """A request for each task, variant and seed; `fields` are further fields of `Request`.

    Without a task it is that of a question whose recipe `budget` is, or `TASK`.

    Raises:
        UserError: an option is malformed, or is not possible on this machine.
    """
    from harness import budgets, environment
    from harness.plan import Request

    torch_device = environment.pick_device(device)
    question = budgets.find(budget).question
    tasks = tasks or [question.task if question else TASK]
    if question:
        for name, value in (("positions", positions), ("precision", precision)):
            if value not in ("", "auto", fixed := getattr(question, name)):
                raise UserError(
                    f"--{name} {value} is not possible: {budget} has {fixed}; leave it out"
                )
    shared = {
        "budget": budget,
        "positions": positions or "learned",
        "settings": settings_of(set_),
        "device": torch_device.type,
        "precision": environment.pick_precision(precision, torch_device),
        "compiled": torch_device.type == "cuda" if compiled is None else compiled,
        **fields,
    }
    return [
        Request(task=task, attention=attention, seed=seed, **shared)
        for task, attention, seed in product(tasks, attentions, seeds_in(seeds))
    ]


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

    from harness import budgets
    from harness.environment import keep_freed_memory, use_threads
    from harness.precision import faster
    from harness.records.store import Store

    if precision != "auto" or all(budgets.find(request.budget).question for request in requests):
        return list(requests)
    keep_freed_memory()
    share = max(1, torch.get_num_threads() // max(1, resources.workers))
    with use_threads(resources.threads or share):
        return faster(requests, Store(folder), announce)


def matched(requests: "Sequence[Request]", match: str) -> "list[Request]":
    """The requests with models of equal size; see `harness.matching`.

    Raises:
        UserError: `match` is not `parameters`, or a model cannot have that size.
    """
    from harness import matching

    if match != "parameters":
        raise UserError(f"--match {match!r} is not possible; give parameters")
    return [matching.matched(request, announce=typer.echo) for request in requests]


def require_owners(requests: "Sequence[Request]", plans: "Sequence[Plan]") -> None:
    """Reject settings that no run uses.

    Raises:
        UserError: an owner is neither a variant nor a task of a run, nor train or model.
    """
    owners = {"model", "train"}
    for plan in plans:
        owners |= {plan.spec.task.name, *plan.spec.variants}
    for owner in {owner for request in requests for owner in request.settings} - owners:
        raise UserError(
            f"--set {owner}: no run uses {owner!r}; give one of {', '.join(sorted(owners))}"
        )


def run(
    plans: "Sequence[Plan]",
    folder: Path,
    *,
    rerun: bool = False,
    keep: bool = False,
    cost: bool = True,
    resources: "Resources | None" = None,
) -> "list[tuple[Record, bool]]":
    """Check every cell, then run those without a final record; see `harness.grid.run_all`.

    They run in this process, or where `resources` says.
    """
    from harness import grid
    from harness.cli import grid_view
    from harness.cli.progress import Output
    from harness.engines.choice import Resources, create
    from harness.environment import keep_freed_memory
    from harness.records.store import Store

    keep_freed_memory()
    store = Store(folder)
    runnable = grid.check(plans, store)
    store.require_writable()
    with grid_view.grid(Output(), Output(stderr=True), store.name) as view:
        pool = create(resources or Resources(), folder, view)
        return grid.run_all(runnable, store, pool, view, rerun=rerun, keep=keep, cost=cost)
