"""`harness budgets`: the named recipes."""

from typing import Annotated

import typer


def budgets(
    show: Annotated[
        str | None, typer.Option(metavar="NAME", help="Print this budget as a TOML file.")
    ] = None,
) -> None:
    """List the budgets, or print one as a TOML file, as a template for one of your own."""
    from harness import budgets

    typer.echo("\n".join(budgets.names()) if show is None else budgets.show(show).rstrip())
