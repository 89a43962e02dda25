"""`harness data`: list, fetch and import data sets."""

from pathlib import Path
from typing import Annotated

import typer

from harness.arguments import MOST
from harness.cli.process import Answer, Command
from zoo.registry import printable

data = typer.Typer(help="List, download, import and record data sets.", no_args_is_help=True)


@data.command(name="list", cls=Command)
def list_(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document; progress goes to stderr.")
    ] = False,
) -> Answer:
    """Print which data sets are present and where, and how to get those that are missing."""
    from tasks.data.sources import status

    if as_json:
        return Answer({"rows": [data_set._asdict() for data_set in status()]})
    lines = [
        f"{data_set.task}: {line}"
        for data_set in status()
        for line in data_set.paths or [f"missing; {data_set.how_to_get}"]
    ]
    return Answer("\n".join(lines))


@data.command(name="import", cls=Command)
def import_(
    task: Annotated[str, typer.Argument(help="The task whose data to import.")],
    path: Annotated[Path, typer.Argument(help="A folder, an archive or a file of the data set.")],
) -> None:
    """Verify and convert local files of a data set, and put the result in the cache.

    TASK uea is every set of that family whose files are there.
    """
    from tasks.data.sources import import_all

    for imported in import_all(task, path):
        typer.echo(printable(f"imported: {imported}"))


@data.command(name="fetch", cls=Command)
def fetch(
    task: Annotated[str, typer.Argument(help="The task whose data to download.")],
    offline: Annotated[
        bool, typer.Option("--offline", help="Use only what was downloaded before.")
    ] = False,
) -> None:
    """Download, verify and convert public files, and put the result in the cache.

    Nothing is downloaded if the cache has the data.
    """
    from harness.cli.progress import download
    from tasks.data.sources import fetch_data

    with download(task) as watch:
        fetched = fetch_data(task, watch, offline)
    typer.echo(printable(f"{'present' if fetched.present else 'fetched'}: {fetched.path}"))
    typer.echo(f"terms: {fetched.terms}")


@data.command(name="record", cls=Command)
def record(
    environment: Annotated[str, typer.Argument(help="The environment, as InvertedPendulum-v5.")],
    path: Annotated[Path, typer.Argument(help="The new HDF5 file.")],
    episodes: Annotated[int, typer.Option(help="Trajectories.", min=1, max=MOST)] = 100,
    seed: Annotated[
        int, typer.Option(help="Seed of the policy and the environment.", min=0, max=2**32 - 1)
    ] = 0,
) -> None:
    """Record trajectories of a scripted policy with noise, for task control."""
    from tasks.control.environment import record
    from tasks.data.trajectories import write

    trajectories = record(environment, episodes, seed)
    write(path, trajectories)
    for name in ("random_return", "expert_return"):
        typer.echo(f"{name}: {trajectories.attributes[name]:g}")
    typer.echo(f"mean return of the file: {trajectories.returns.mean():g}")
    typer.echo(printable(f"recorded: {path}, {len(trajectories.rewards)} steps"))
