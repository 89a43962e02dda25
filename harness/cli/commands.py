"""The subcommands, in the order in which the help lists them."""

from typing import Annotated

import typer

from harness.cli.advise import advise
from harness.cli.approximation import approximation
from harness.cli.budgets import budgets
from harness.cli.check import check
from harness.cli.cost import cost
from harness.cli.curves import curves
from harness.cli.data import data
from harness.cli.ksvd import ksvd
from harness.cli.list import list_
from harness.cli.locality import locality
from harness.cli.measure import measure
from harness.cli.process import Command
from harness.cli.report import report
from harness.cli.reproduce import reproduce
from harness.cli.run import run
from harness.cli.site import site
from harness.cli.spectrum import spectrum
from harness.cli.status import status
from harness.cli.sweep import sweep

app = typer.Typer(
    name="harness",
    no_args_is_help=True,
    add_completion=False,
    # Rich markup would add a tenth of a second to every start.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
COMMANDS = (
    run, status, sweep, curves, cost, reproduce, locality, spectrum, approximation, ksvd, measure,
    check, list_, budgets, report, advise, site,
)  # fmt: skip
for function in COMMANDS:
    app.command(name=function.__name__.rstrip("_"), cls=Command)(function)
app.add_typer(data, name="data")


def _print_version(requested: bool) -> bool:
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
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Compare attention variants: accuracy, speed and memory, measured in the same way for all."""
