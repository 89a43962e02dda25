"""`harness data`: list, fetch and import data sets."""

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.process import Answer, add_command, group
from zoo.registry import printable

Task = Annotated[str, {"argument": True}]
File = Annotated[Path, {"argument": True}]


def list_() -> Answer:
    """Print which data sets are present and where, and how to get those that are missing."""
    from tasks.data.sources import status

    found = [*status()]
    lines = [
        f"{data_set.task}: {line}"
        for data_set in found
        for line in data_set.paths or [f"missing; {data_set.how_to_get}"]
    ]
    return Answer("\n".join(lines), {"rows": [data_set._asdict() for data_set in found]})


def import_(task: Task, path: File) -> None:
    """Verify and convert local files of a data set, and put the result in the cache.

    TASK uea is every set of that family whose files are there.

    Args:
        task: The task whose data to import.
        path: A folder, an archive or a file of the data set.
    """
    from tasks.data.sources import import_all

    for imported in import_all(task, path):
        typer.echo(printable(f"imported: {imported}"))


def fetch(task: Task, offline: bool = False) -> None:
    """Download, verify and convert public files, and put the result in the cache.

    Nothing is downloaded if the cache has the data.

    Args:
        task: The task whose data to download.
        offline: Use only what was downloaded before.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    from tasks.data.sources import fetch_data

    console, text = Console(stderr=True), TextColumn("[bold]{task.description}")
    columns = (text, BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        row = bar.add_task(task, total=None)
        fetched = fetch_data(
            task, lambda file, done, total: bar.update(
                row, description=f"{task}: {file}", completed=done, total=total
            ), offline,
        )  # fmt: skip
    typer.echo(printable(f"{'present' if fetched.present else 'fetched'}: {fetched.path}"))
    typer.echo(f"terms: {fetched.terms}")


data = group(help="List, download and import data sets.")
for command in (list_, import_, fetch):
    add_command(data, command)
