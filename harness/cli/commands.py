"""The subcommands, in the order in which the help lists them."""

from collections import Counter
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from harness.cli.budgets import budgets
from harness.cli.check import check
from harness.cli.data import data
from harness.cli.list import list_
from harness.cli.locality import locality
from harness.cli.measure import measure
from harness.cli.report import report
from harness.cli.run import run
from harness.interrupts import EXIT_TERMINATED, Terminated


class Command(TyperCommand):
    """A command that rejects repeated options, and exits with 143 on SIGTERM."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Typer alone would use the last value of a repeated option.

        Raises:
            BadParameter: an option that takes one value is given more than once.
        """
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for parameter, count in Counter(order).items():
            if count > 1 and not getattr(parameter, "multiple", True):
                raise typer.BadParameter(
                    f"Option {parameter.opts[0]} is given twice; give it once."
                )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; SIGTERM becomes an exit, since Typer would handle it as Ctrl-C."""
        try:
            return super().invoke(ctx)
        except Terminated:
            raise typer.Exit(EXIT_TERMINATED) from None


app = typer.Typer(
    name="harness",
    no_args_is_help=True,
    add_completion=False,
    # Rich markup would add a tenth of a second to every start.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for function in (run, locality, measure, check, list_, budgets, report):
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
