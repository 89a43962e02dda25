"""The command line: one thin function a command. Nothing heavy is imported before it is needed."""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from harness.cli_data import data
from harness.cli_pages import cards, certify, check
from zoo.registry import Refused

if TYPE_CHECKING:
    from harness.store import Broken, Record, RunSpec

# Typer brings click under one name or another, depending on its version.
UsageError: Any = typer.BadParameter.__base__

INTERRUPTED = 130

app = typer.Typer(
    name="harness",
    no_args_is_help=True,
    add_completion=False,
    # Plain help: rich markup would cost a tenth of a second at every start.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(data, name="data")


def _tell_version(asked: bool) -> bool:
    if not asked:
        return False
    from importlib import metadata

    typer.echo(f"harness {metadata.version('attention-harness')}")
    raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Compare attention variants: accuracy, speed and memory that can be trusted."""


StoreOption = Annotated[Path, typer.Option(help="Folder of records, one JSON file a run.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="NAME.OPTION=VALUE, NAME a variant or a task; repeatable."),
]


@app.command()
def run(
    attention: Annotated[str, typer.Option("--attention", "-a", help="A, A+B, or A,A+B,...")],
    task: Annotated[str, typer.Option("--task", "-t", help="TASK or TASK,TASK,...")] = "listops",
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
    again: Annotated[bool, typer.Option("--again", help="Run finished cells anew, too.")] = False,
) -> None:
    """Train every variant on every task with every seed; report accuracy, speed and memory."""
    from harness import argv, budgets, environment, tables
    from harness.store import Store

    chosen = environment.pick_device(device)
    settings = argv.settings(set_ or [])
    requests = [
        budgets.Request(
            attention=variant,
            task=name,
            budget=budget,
            seed=seed,
            device="cuda" if chosen.type == "cuda" else "cpu",
            precision=environment.pick_precision(precision, chosen),
            compiled=chosen.type == "cuda" if compiled is None else compiled,
            positions=positions,
            settings=settings,
        )
        for name in argv.words(task)
        for variant in argv.words(attention)
        for seed in argv.seeds(seeds)
    ]
    specs = [budgets.plan(request) for request in requests]
    argv.require_owners(settings, specs)
    outcome = _run_all(specs, store, again=again)
    typer.echo(tables.outcome(record for record, _ in outcome))
    typer.echo(tables.places(outcome, Store(store)))
    raise typer.Exit(0 if all(record.status == "ok" for record, _ in outcome) else 1)


@app.command()
def locality(
    task: Annotated[str, typer.Argument(help="TASK or TASK,TASK,...")],
    windows: Annotated[
        str, typer.Option(help="Tokens that are seen; commas separate.")
    ] = "8,32,128",
    budget: Annotated[str, typer.Option(help="Recipe: smoke, laptop or paper.")] = "laptop",
    seeds: Annotated[str, typer.Option(help="Seeds; commas separate.")] = "0",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    set_: SetOption = None,
    store: StoreOption = Path("runs"),
) -> None:
    """Measure how far a model has to look: accuracy against the tokens that it may see."""
    from harness import argv, audit, environment
    from reports.locality import write

    chosen = environment.pick_device(device)
    settings, seen = argv.settings(set_ or []), argv.windows(windows)
    specs = [
        spec
        for name in argv.words(task)
        for seed in argv.seeds(seeds)
        for spec in audit.cells(name, seen, budget, seed, chosen, settings)
    ]
    argv.require_owners(settings, specs)
    ran = [record for record, _ in _run_all(specs, store, again=False)]
    bad = [f"{record.status}: {record.reason}" for record in ran if record.status != "ok"]
    if bad:
        why = ", ".join(dict.fromkeys(bad))
        typer.echo(f"warning: {len(bad)} of {len(ran)} runs did not finish ({why})", err=True)
    try:
        for path in write(_records(store)[0], store):
            typer.echo(path)
    except (OSError, ValueError) as error:
        raise Refused(f"no page written: {error}; give another --store") from error
    raise typer.Exit(1 if bad else 0)


def _records(store: Path) -> "tuple[list[Record], list[Broken]]":
    """Everything that a store holds, with a warning for each file that is no record."""
    from harness.store import Store

    records, broken = Store(store).read()
    for one in broken:
        typer.echo(f"warning: {one.path} is not a record and is left out: {one.reason}", err=True)
    return records, broken


def _run_all(
    specs: "Sequence[RunSpec]", store: Path, *, again: bool
) -> "list[tuple[Record, bool]]":
    """Check every cell, then run those that are not done, on the screen; see `grid.run_all`."""
    from rich.console import Console

    from harness import grid
    from harness.store import Store
    from harness.terminal import Screen

    folder = Store(store)
    grid.check(specs, folder)
    folder.require_writable()
    with Screen(Console()) as screen:
        return grid.run_all(specs, folder, screen.watch, again=again)


@app.command()
def measure(store: StoreOption = Path("runs")) -> None:
    """Measure the cost of every finished run of a store anew, on a machine that is now quiet."""
    from harness import run, tables
    from harness.store import Store

    folder = Store(store)
    records = [record for record in folder.read()[0] if record.status == "ok"]
    if not records:
        raise Refused(f"store {str(store)!r} holds no finished run; make one with: harness run")
    for record in records:
        typer.echo(tables.outcome([run.measure_anew(record, folder)]))


# Here: the help lists commands in the order in which they are added.
for command in (check, certify, cards):
    app.command()(command)


@app.command(name="list")
def list_() -> None:
    """List the variants with what they claim, the tasks, and the budgets."""
    from harness import budgets, tables

    typer.echo(tables.claims())
    typer.echo("\nA+B puts layers of A under a last layer of B.\n")
    typer.echo(tables.questions())
    typer.echo(f"\nbudgets: {', '.join(budgets.names())}")


@app.command()
def report(
    store: StoreOption = Path("runs"),
    out: Annotated[
        Path | None, typer.Option(help="Folder for the pages; by default the store itself.")
    ] = None,
    readme: Annotated[
        Path | None, typer.Option(help="A page to renew between its <!-- leaderboard --> marks.")
    ] = None,
) -> None:
    """Write leaderboard.md, leaderboard.csv and the figures from the records of a store."""
    from harness.store import place
    from reports.leaderboard import embed, write

    if not store.is_dir():
        raise Refused(f"store {str(store)!r} is not a folder; make records with: harness run")
    records, broken = _records(store)
    try:
        renewed = embed(readme.read_text("utf-8"), records) if readme else ""
        paths = write(records, broken, store if out is None else out)
        for path in [*paths, *([place(readme, renewed.encode())] if readme else [])]:
            typer.echo(path)
    except (OSError, ValueError) as error:
        raise Refused(f"no report written: {error}; give another --out or --readme") from error


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; bad input is one line and exit code 2, an interrupt is 130."""
    # The profiler that counts allocations writes its own progress to stderr otherwise.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    warnings.showwarning = _show_warning
    _exit(lambda: app(args=argv, standalone_mode=False))


def _show_warning(message: Warning | str, *_: object) -> None:
    """Print a warning as one line, without the line of code that gave it."""
    typer.echo(f"harness: warning: {' '.join(str(message).split())}", err=True)


def _exit(command: Callable[[], object]) -> NoReturn:
    try:
        code = command()
    except Refused as error:
        typer.echo(f"harness: {error}", err=True)
        code = 2
    except UsageError as error:
        message = error.format_message()
        if not message.startswith("Usage:"):
            message = f"harness: {' '.join(message.split())} See: harness COMMAND --help"
        typer.echo(message, err=True)
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    # Some versions of Typer turn an interrupt into its exit code themselves.
    if code == INTERRUPTED:
        typer.echo("harness: interrupted", err=True)
    sys.exit(code if isinstance(code, int) else 0)
