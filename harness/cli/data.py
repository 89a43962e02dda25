"""`harness data`: list, fetch and import data sets."""

from pathlib import Path
from typing import Annotated

import typer

from harness.arguments import MOST
from harness.cli.options import add_command, group
from harness.cli.process import Answer
from zoo.registry import printable

Task = Annotated[str, {"argument": True}]
File = Annotated[Path, {"argument": True}]
Episodes = Annotated[int, {"min": 1, "max": MOST}]
Seed = Annotated[int, {"min": 0, "max": 2**32 - 1}]


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
    from harness.cli.console import download
    from tasks.data.sources import fetch_data

    with download(task) as watch:
        fetched = fetch_data(task, watch, offline)
    typer.echo(printable(f"{'present' if fetched.present else 'fetched'}: {fetched.path}"))
    typer.echo(f"terms: {fetched.terms}")


def record(environment: Task, path: File, episodes: Episodes = 100, seed: Seed = 0) -> None:
    """Record trajectories of a scripted policy with noise, for task control.

    Args:
        environment: The environment, as InvertedPendulum-v5.
        path: The new HDF5 file.
        episodes: Trajectories.
        seed: Seed of the policy and the environment.
    """
    from tasks.control.environment import record as record_all
    from tasks.data.trajectories import write

    trajectories = record_all(environment, episodes, seed)
    write(path, trajectories)
    for name in ("random_return", "expert_return"):
        typer.echo(f"{name}: {trajectories.attributes[name]:g}")
    typer.echo(f"mean return of the file: {trajectories.returns.mean():g}")
    typer.echo(printable(f"recorded: {path}, {len(trajectories.rewards)} steps"))


data = group(help="List, download, import and record data sets.")
for command in (list_, import_, fetch, record):
    add_command(data, command)
