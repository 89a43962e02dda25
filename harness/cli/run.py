"""`harness run`: train variants on tasks."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.arguments import (
    AttentionOption,
    BudgetOption,
    DeviceOption,
    PrecisionOption,
    SeedsOption,
    SetOption,
    StoreOption,
    TaskOption,
    names_in,
    require_owners,
    seeds_in,
    settings_of,
)

if TYPE_CHECKING:
    from harness.plan import Plan
    from harness.records.record import Record


def run(
    attention: AttentionOption,
    task: TaskOption = None,
    budget: BudgetOption = "laptop",
    seeds: SeedsOption = "0",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    positions: Annotated[str, typer.Option(help="learned or rotary.")] = "learned",
    compiled: Annotated[
        bool | None,
        typer.Option("--compile/--no-compile", help="torch.compile; by default on CUDA only."),
    ] = None,
    set_: SetOption = None,
    store: StoreOption = Path("runs"),
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Run finished cells again, from the beginning.")
    ] = False,
) -> None:
    """Train every variant on every task with every seed; report accuracy, speed and memory.

    Exit 1 if a run failed, or was skipped because the variant does not support the task.
    """
    from harness.plan import Request, resolve
    from harness.records.store import Store
    from reports import tables

    common = device_fields(device, precision)
    if compiled is not None:
        common["compiled"] = compiled
    settings = settings_of(set_)
    plans = [
        resolve(
            Request(
                attention=variant, task=name, budget=budget, seed=seed, positions=positions,
                settings=settings, **common,
            ),
            announce=typer.echo,
        )
        for name in names_in(task or ["listops"])
        for variant in names_in(attention)
        for seed in seeds_in(seeds)
    ]  # fmt: skip
    require_owners(settings, plans)
    outcomes = run_cells(plans, store, rerun=rerun)
    folder = Store(store)
    for record, new in outcomes:
        note = "" if new else "  (already present; run it again with --rerun)"
        typer.echo(f"{folder.path(record.spec)}{note}")
    typer.echo(f"\n{tables.summary([record for record, _ in outcomes])}")
    typer.echo(f"\nleaderboard: harness report --store {store}")
    complete = len(outcomes) == len(plans) and all(one.status == "ok" for one, _ in outcomes)
    raise typer.Exit(0 if complete else 1)


def device_fields(device: str, precision: str) -> dict[str, Any]:
    """The fields of a `Request` that depend on the device."""
    from harness import environment

    chosen = environment.pick_device(device)
    return {
        "device": chosen.type,
        "precision": environment.pick_precision(precision, chosen),
        "compiled": chosen.type == "cuda",
    }


def run_cells(
    plans: "Sequence[Plan]", store: Path, *, rerun: bool = False
) -> "list[tuple[Record, bool]]":
    """Check every cell, then run those without a final record; see `grid.run_all`."""
    from rich.console import Console

    from harness import grid
    from harness.cli.progress import cells
    from harness.environment import keep_freed_memory
    from harness.records.store import Store

    keep_freed_memory()
    folder = Store(store)
    runnable = grid.check(plans, folder)
    folder.require_writable()
    with cells(Console(), Console(stderr=True)) as callback:
        return grid.run_all(runnable, folder, callback, rerun=rerun)
