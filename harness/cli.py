"""The command line: one thin function a command. Nothing heavy is imported before it is needed."""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from zoo.registry import Refused, options_of

if TYPE_CHECKING:
    from harness.budgets import Request
    from harness.store import Record

# Plain help: rich markup would cost a tenth of a second at every start.
# Typer brings click under one name or another, depending on its version.
UsageError: Any = typer.BadParameter.__base__

INTERRUPTED = 130

app = typer.Typer(
    name="harness",
    help="Compare attention variants: accuracy, speed and memory that can be trusted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
data = typer.Typer(help="See and import the data sets.", no_args_is_help=True)
app.add_typer(data, name="data")

StoreOption = Annotated[Path, typer.Option(help="Folder of records, one JSON file a run.")]


@app.command()
def run(
    attention: Annotated[str, typer.Option("--attention", "-a", help="A, A+B, or A,A+B,...")],
    task: Annotated[str, typer.Option("--task", "-t", help="TASK or TASK,TASK,...")] = "listops",
    budget: Annotated[str, typer.Option(help="Recipe: smoke, laptop or paper.")] = "laptop",
    seeds: Annotated[str, typer.Option(help="Seeds; commas separate.")] = "0",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[str, typer.Option(help="auto, bf16 or fp32.")] = "auto",
    compiled: Annotated[
        bool | None,
        typer.Option("--compile/--no-compile", help="torch.compile; by default on CUDA only."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME.OPTION=VALUE, NAME a variant or a task; repeatable."),
    ] = None,
    store: StoreOption = Path("runs"),
    again: Annotated[bool, typer.Option("--again", help="Run finished cells anew, too.")] = False,
) -> None:
    """Train every variant on every task with every seed; report accuracy, speed and memory."""
    from rich.console import Console

    from harness import budgets, environment, grid
    from harness.store import Store
    from harness.terminal import Screen

    chosen = environment.pick_device(device)
    settings = _settings(set_ or [])
    requests = [
        budgets.Request(
            attention=variant,
            task=name,
            budget=budget,
            seed=seed,
            device="cuda" if chosen.type == "cuda" else "cpu",
            precision=environment.pick_precision(precision, chosen),
            compiled=chosen.type == "cuda" if compiled is None else compiled,
            settings=settings,
        )
        for name in _words(task)
        for variant in _words(attention)
        for seed in _seeds(seeds)
    ]
    specs = [budgets.plan(request) for request in requests]
    _require_owners(settings, requests)
    grid.check(specs)
    folder = Store(store)
    folder.require_writable()
    with Screen(Console()) as screen:
        outcome = grid.run_all(specs, folder, screen.watch, again=again)
    _show_outcome([record for record, _ in outcome])
    for record, new in outcome:
        typer.echo(f"{folder.path(record.spec)}{'' if new else '  (was there; --again to redo)'}")
    typer.echo(f"leaderboard: harness report --store {store}")
    raise typer.Exit(0 if all(record.status == "ok" for record, _ in outcome) else 1)


@app.command(name="list")
def list_() -> None:
    """List the variants with what they claim, the tasks, and the budgets."""
    import dataclasses

    from harness import budgets
    from tasks import tasks
    from zoo.variants import variants

    rows = []
    for name, variant in variants.items():
        claims = dataclasses.asdict(variant.traits)
        claims["losses"] = ", ".join(claims["losses"])
        rows.append(
            [name, *("yes" if c is True else c or "" for c in claims.values()), _defaults(variant)]
        )
    head = ["attention", *(f.name for f in dataclasses.fields(variants.find("softmax").traits))]
    _table([*head, "options"], rows)
    typer.echo("\nA+B puts layers of A under a last layer of B.\n")
    _table(
        ["task", "classes", "length", "options"],
        [
            [f"{name}@{task.version}", str(task.classes), str(task().max_len), _defaults(task)]
            for name, task in tasks.items()
        ],
    )
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
    from harness.store import Store, place
    from reports.leaderboard import embed, write

    if not store.is_dir():
        raise Refused(f"store {str(store)!r} is not a folder; make records with: harness run")
    records, broken = Store(store).read()
    for one in broken:
        typer.echo(f"warning: {one.path} is not a record and is left out: {one.reason}", err=True)
    for path in write(records, broken, store if out is None else out):
        typer.echo(path)
    if readme is not None:
        typer.echo(place(readme, embed(readme.read_text("utf-8"), records).encode()))


@data.command(name="list")
def data_list() -> None:
    """Say which data sets are present, where, and how to get what is missing."""
    from tasks.sources import status

    for one in status():
        for line in one.paths or [f"missing; {one.remedy}"]:
            typer.echo(f"{one.task}: {line}")


@data.command(name="import")
def data_import(
    task: Annotated[str, typer.Argument(help="The task whose data to import.")],
    path: Annotated[Path, typer.Argument(help="A file of the data set, or a folder of them.")],
) -> None:
    """Verify files that you have, convert them, and put them in the cache."""
    from tasks.sources import import_data

    typer.echo(f"imported: {import_data(task, path)}")


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


def _words(text: str) -> list[str]:
    """Split at commas, each word once, in order."""
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise Refused(f"{text!r} holds an empty name; separate names by single commas")
    return list(dict.fromkeys(words))


def _seeds(text: str) -> list[int]:
    try:
        seeds = [int(word) for word in _words(text)]
    except ValueError:
        raise Refused(f"seeds {text!r} are not whole numbers; give for example 0,1,2") from None
    if not 0 <= min(seeds) <= max(seeds) < 2**32:
        raise Refused(f"seeds {text!r} leave the range from 0 to 2**32 - 1; give others")
    return seeds


def _settings(given: Sequence[str]) -> dict[str, dict[str, str]]:
    """Read NAME.OPTION=VALUE texts."""
    settings: dict[str, dict[str, str]] = {}
    for text in given:
        path, equals, value = text.partition("=")
        owner, dot, option = path.partition(".")
        if not (owner and dot and option and equals and value):
            raise Refused(f"--set {text!r} is not of the form NAME.OPTION=VALUE")
        settings.setdefault(owner, {})[option] = value
    return settings


def _require_owners(settings: dict[str, dict[str, str]], requests: "Sequence[Request]") -> None:
    """Refuse a setting whose owner takes no part in the run: it would have no effect."""
    parts = {part for one in requests for part in (one.task, *one.attention.split("+"))}
    for owner in settings.keys() - parts:
        raise Refused(f"--set {owner}: {owner!r} takes no part; those that do: {sorted(parts)}")


def _defaults(factory: Callable[..., object]) -> str:
    """The options of a variant or a task with their defaults, for a table."""
    return ", ".join(f"{name}={p.default}" for name, p in options_of(factory).items())


def _show_outcome(records: "Sequence[Record]") -> None:
    """Print one line a run."""
    head = ["attention", "task", "seed", "test %", "dev %", "floor %", "s/1K steps", "x softmax"]
    head += ["peak MiB", "x softmax", "tokens/s", "parameters", "GFLOP/step"]
    _table(head, [_outcome_row(record) for record in records])


def _outcome_row(record: "Record") -> list[str]:
    spec, final, cost = record.spec, record.final, record.cost
    row = [spec.attention, spec.task.key, str(spec.seed)]
    if final is None:
        row += [f"{record.status}: {record.reason}", "", ""]
    else:
        floor = max(record.floors.values())
        row += [f"{100 * x:.1f}" for x in (final.test_accuracy, final.dev_accuracy, floor)]
    if cost is None:
        return row + [""] * 7
    own = cost.own
    return [
        *row,
        f"{own.seconds_per_1k_steps.median:.1f}",
        f"{cost.time_ratio.median:.2f}",
        f"{own.peak_bytes / 2**20:.1f}",
        f"{cost.memory_ratio:.2f}",
        f"{own.tokens_per_second.median:,.0f}",
        f"{own.parameters:,}",
        f"{own.flops / 1e9:.1f}",
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from tabulate import tabulate

    typer.echo(tabulate(rows, headers=head, disable_numparse=True))
