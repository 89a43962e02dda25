"""The commands that fill a store: they train, measure, and train again with less to see."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.plan import Plan
    from harness.records.record import Record
    from harness.records.store import Broken

StoreOption = Annotated[Path, typer.Option(help="Folder of records, one JSON file a run.")]
AttentionOption = Annotated[
    list[str], typer.Option("--attention", "-a", help="A, A+B, or A,A+B,...; repeatable.")
]
TaskOption = Annotated[
    list[str] | None,
    typer.Option("--task", "-t", help="TASK or TASK,TASK,...; repeatable; listops if none."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="NAME.OPTION=VALUE, NAME a variant or a task; repeatable."),
]


def run(
    attention: AttentionOption,
    task: TaskOption = None,
    budget: Annotated[str, typer.Option(help="Recipe: smoke, laptop or paper.")] = "laptop",
    seeds: Annotated[str, typer.Option(help="Seeds; commas separate.")] = "0",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[str, typer.Option(help="auto, bf16 or fp32.")] = "auto",
    positions: Annotated[str, typer.Option(help="learned or rotary.")] = "learned",
    compiled: Annotated[
        bool | None,
        typer.Option("--compile/--no-compile", help="torch.compile; by default on CUDA only."),
    ] = None,
    set_: SetOption = None,
    store: StoreOption = Path("runs"),
    rerun: Annotated[bool, typer.Option("--again", help="Run finished cells anew, too.")] = False,
) -> None:
    """Train every variant on every task with every seed; report accuracy, speed and memory."""
    from harness import plan, tables
    from harness.cli import arguments
    from harness.records.store import Store

    settings = arguments.settings(set_ or [])
    where = _where(device, precision, compiled)
    requests = [
        plan.Request(
            attention=variant,
            task=name,
            budget=budget,
            seed=seed,
            positions=positions,
            settings=settings,
            **where,
        )
        for name in arguments.words(*(task or ["listops"]))
        for variant in arguments.words(*attention)
        for seed in arguments.seeds(seeds)
    ]
    specs = [plan.resolve(request, typer.echo) for request in requests]
    arguments.require_owners(settings, specs)
    outcome = _run_all(specs, store, rerun=rerun)
    typer.echo(tables.outcome(record for record, _ in outcome))
    typer.echo(tables.places(outcome, Store(store)))
    raise typer.Exit(0 if all(record.status == "ok" for record, _ in outcome) else 1)


def locality(
    task: Annotated[str, typer.Argument(help="TASK or TASK,TASK,...")],
    windows: Annotated[
        str, typer.Option(help="Tokens that are seen, fewer than a document has; commas separate.")
    ] = "8,32,128",
    budget: Annotated[str, typer.Option(help="Recipe: smoke, laptop or paper.")] = "laptop",
    seeds: Annotated[str, typer.Option(help="Seeds; commas separate.")] = "0",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    set_: SetOption = None,
    store: StoreOption = Path("runs"),
) -> None:
    """Measure how far a model has to look: accuracy against the tokens that it may see."""
    from harness import locality as locality_cells
    from harness.cli import arguments
    from harness.plan import Request
    from harness.records.files import write_all
    from reports.pages import locality_files

    settings, tokens = arguments.settings(set_ or []), arguments.windows(windows)
    where = _where(device)
    requests = [
        Request(
            attention="softmax", task=name, budget=budget, seed=seed, settings=settings, **where
        )
        for name in arguments.words(task)
        for seed in arguments.seeds(seeds)
    ]
    specs = [spec for request in requests for spec in locality_cells.windowed(request, tokens)]
    arguments.require_owners(settings, specs)
    specs += locality_cells.shuffled(requests, tokens)
    ran = [record for record, _ in _run_all(specs, store, rerun=False)]
    bad = [f"{record.status}: {record.reason}" for record in ran if record.status != "ok"]
    if bad:
        why = ", ".join(dict.fromkeys(bad))
        typer.echo(f"warning: {len(bad)} of {len(ran)} runs did not finish ({why})", err=True)
    try:
        for path in write_all(store, locality_files(records_of(store)[0])):
            typer.echo(path)
    except (OSError, ValueError) as error:
        raise UserError(f"no page written: {error}; give another --store") from error
    raise typer.Exit(1 if bad else 0)


def measure(store: StoreOption = Path("runs")) -> None:
    """Measure the cost of every finished run of a store anew, on a machine that is now quiet.

    Exit 1 where a record could not be measured, and is left as it was.
    """
    from harness import run, tables
    from harness.environment import keep_freed_memory
    from harness.records.store import Store

    keep_freed_memory()
    folder = Store(store)
    records = [record for record in records_of(store)[0] if record.status == "ok"]
    if not records:
        raise UserError(f"store {str(store)!r} holds no finished run; make one with: harness run")
    left = 0
    for record in records:
        try:
            typer.echo(tables.outcome([run.remeasure(record, folder)]))
        except Exception as error:
            left += 1
            reason = str(error) if isinstance(error, UserError) else run.reason_of(error)
            where = folder.path(record.spec)
            typer.echo(f"warning: {where} is left as it was: {reason}", err=True)
    raise typer.Exit(1 if left else 0)


def _where(device: str, precision: str = "auto", compiled: bool | None = None) -> dict[str, Any]:
    """The device, and what follows from it unless it is given, as a `plan.Request` has them."""
    from harness import environment

    chosen = environment.pick_device(device)
    return {
        "device": chosen.type,
        "precision": environment.pick_precision(precision, chosen),
        "compiled": chosen.type == "cuda" if compiled is None else compiled,
    }


def _run_all(specs: "Sequence[Plan]", store: Path, *, rerun: bool) -> "list[tuple[Record, bool]]":
    """Check every cell, then run those that are not done, on the screen; see `grid.run_all`."""
    from rich.console import Console

    from harness import grid
    from harness.environment import keep_freed_memory
    from harness.records.store import Store
    from harness.terminal import Screen

    keep_freed_memory()
    folder = Store(store)
    runnable = grid.check(specs, folder)
    folder.require_writable()
    with Screen(Console(), Console(stderr=True)) as screen:
        return grid.run_all(runnable, folder, screen.watch, rerun=rerun)


def records_of(store: Path) -> "tuple[list[Record], list[Broken]]":
    """Everything that a store holds, with a warning for each file that is no record."""
    from harness.records.store import Store

    records, broken = Store(store).read()
    for one in broken:
        typer.echo(f"warning: {one.path} is not a record and is left out: {one.reason}", err=True)
    return records, broken
