"""The commands, in the order in which the help lists them."""

from typing import Annotated

import typer

from harness.cli.advise import advise
from harness.cli.check import check
from harness.cli.cost import cost
from harness.cli.data import data
from harness.cli.list import list_
from harness.cli.pack import pack
from harness.cli.process import add_command, group
from harness.cli.report import report
from harness.cli.run import run
from harness.cli.site import site
from harness.cli.status import status
from harness.cli.study import study

app = group(name="harness")
for function in (run, status, cost, check, list_, report, advise, site, pack):
    add_command(app, function)
app.add_typer(data, name="data")
app.add_typer(study, name="study")


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
