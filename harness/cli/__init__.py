"""The command line: one thin function a command. Nothing heavy is imported before it is needed."""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer

from harness.cli.data import data
from harness.cli.pages import cards, certify, check, report
from harness.cli.runs import locality, measure, run
from zoo.registry import UserError

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


def _tell_version(requested: bool) -> bool:
    if not requested:
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


def list_() -> None:
    """List the variants with what they claim, the tasks, and the budgets."""
    from harness import budgets, tables

    typer.echo(tables.claims())
    typer.echo("\nA+B puts layers of A under a last layer of B.\n")
    typer.echo(tables.questions())
    typer.echo(f"\nbudgets: {', '.join(budgets.names())}")


# In the order in which the help lists them.
for command in (run, locality, measure, check, certify, cards, list_, report):
    app.command(name=command.__name__.rstrip("_"))(command)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; bad input is one line and exit code 2, an interrupt is 130."""
    # The profiler that counts allocations writes its own progress to stderr otherwise.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    warnings.showwarning = _show_once()
    _exit(lambda: app(args=argv, standalone_mode=False))


def _show_once() -> Callable[..., None]:
    """What prints each warning once, as one line, without the line of code that gave it."""
    shown = set()

    def show(message: Warning | str, *_: object) -> None:
        line = f"harness: warning: {' '.join(str(message).split())}"
        if line not in shown:
            shown.add(line)
            typer.echo(line, err=True)

    return show


def _exit(command: Callable[[], object]) -> NoReturn:
    try:
        code = command()
    except UserError as error:
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
