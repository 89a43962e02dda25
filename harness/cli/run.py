"""`harness run`: train variants on tasks."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import arguments, cells

if TYPE_CHECKING:
    from harness.records.record import Record


def run(
    attention: Annotated[
        list[str], typer.Option("--attention", "-a", help="A, A+B, or A,A+B,...; repeatable.")
    ],
    task: Annotated[
        list[str] | None,
        typer.Option(
            "--task", "-t", help="TASK or TASK,TASK,...; repeatable; listops if none is given."
        ),
    ] = None,
    budget: arguments.BudgetOption = "laptop",
    seeds: arguments.SeedsOption = "0",
    device: arguments.DeviceOption = "auto",
    precision: arguments.PrecisionOption = "auto",
    positions: Annotated[str, typer.Option(help="learned or rotary.")] = "learned",
    compiled: Annotated[
        bool | None,
        typer.Option("--compile/--no-compile", help="torch.compile; by default on CUDA only."),
    ] = None,
    set_: arguments.SetOption = None,
    store: arguments.StoreOption = Path("runs"),
    engine: arguments.EngineOption = "local",
    workers: arguments.WorkersOption = 0,
    threads: arguments.ThreadsOption = 0,
    slurm: arguments.SlurmOption = None,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Repeat finished runs, from the beginning.")
    ] = False,
) -> None:
    """Train every variant on every task with every seed; report accuracy, speed and memory.

    Each run is made once: commands on one store, of one machine or several, share its cells.
    Exit 1 if a run failed, or was skipped because the variant does not support the task.
    """
    from harness.plan import resolve

    tasks, attentions = arguments.names_in(task or ["listops"]), arguments.names_in(attention)
    resources = arguments.resources(engine, workers, threads, device, slurm)
    requests = cells.requests(
        tasks, attentions, seeds, budget=budget, device=device, precision=precision, set_=set_,
        positions=positions, compiled=compiled,
    )  # fmt: skip
    plans = [resolve(request, announce=typer.echo) for request in requests]
    cells.require_owners(requests, plans)
    outcomes = cells.run(plans, store, rerun=rerun, resources=resources)
    _show(outcomes, store)
    complete = len(outcomes) == len(plans) and all(record.status == "ok" for record, _ in outcomes)
    raise typer.Exit(0 if complete else 1)


def _show(outcomes: "Sequence[tuple[Record, bool]]", store: Path) -> None:
    """Print the path of each record, and the summary."""
    from harness.records.store import Store
    from reports import tables

    for record, new in outcomes:
        note = "" if new else "  (already present; run it again with --rerun)"
        typer.echo(f"{Store(store).path(record.spec)}{note}")
    typer.echo(f"\n{tables.summary([record for record, _ in outcomes])}")
    typer.echo(f"\nleaderboard: harness report --store {store}")
