"""The commands of `harness data`, each a thin function over `tasks`."""

from pathlib import Path
from typing import Annotated

import typer

data = typer.Typer(help="See, fetch and import the data sets.", no_args_is_help=True)


@data.command(name="list")
def list_() -> None:
    """Say which data sets are present, where, and how to get what is missing."""
    from tasks.data.sources import status

    for one in status():
        for line in one.paths or [f"missing; {one.remedy}"]:
            typer.echo(f"{one.task}: {line}")


@data.command(name="import")
def import_(
    task: Annotated[str, typer.Argument(help="The task whose data to import.")],
    path: Annotated[Path, typer.Argument(help="A folder, an archive or a file of the data set.")],
) -> None:
    """Verify files that you have, convert them, and put them in the cache."""
    from tasks.data.sources import import_data

    typer.echo(f"imported: {import_data(task, path)}")


@data.command(name="fetch")
def fetch(
    task: Annotated[str, typer.Argument(help="The task whose data to fetch.")],
    offline: Annotated[
        bool, typer.Option("--offline", help="Use only what was downloaded before.")
    ] = False,
) -> None:
    """Download public files, verify and convert them, and put them in the cache, if need be."""
    from rich.console import Console

    from harness.terminal import download
    from tasks.data.download import fetch_data

    with download(Console(stderr=True), task) as watch:
        fetched = fetch_data(task, watch, offline)
    typer.echo(f"{'present' if fetched.present else 'fetched'}: {fetched.path}")
    typer.echo(f"terms: {fetched.terms}")
