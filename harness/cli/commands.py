"""The commands, in the order in which the help lists them."""

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.advise import advise
from harness.cli.check import check
from harness.cli.cost import cost
from harness.cli.data import data
from harness.cli.list import list_
from harness.cli.process import Answer, add_command, group
from harness.cli.report import report
from harness.cli.run import run
from harness.cli.status import status
from harness.cli.study import study


def site(out: Path, suite: str = "laptop", store: Path | None = None) -> Answer:
    """Write the site, one index.html.

    It has the matrix of a suite, the advisor, charts and a card for each variant.

    It needs no other file and no network.

    Args:
        out: Folder of index.html.
        suite: NAME, NAME@VERSION or a TOML file.
        store: Folder of records; by default the published.
    """
    from reports.store import write_site

    files = write_site(suite, store, out)
    return Answer(document={"files": files}, files=files)


def pack(
    suite: str = "", attention: str = "", store: Path = Path("runs"), out: Path = Path("results"),
) -> Answer:  # fmt: skip
    """Write a row of a suite to one file, SUITE/ROW.jsonl, which a pull request publishes.

    It has the runs of every question, rate and seed, the costs, and the certificates. Without
    --suite every record of the store is written; files in --out are merged.

    Args:
        suite: NAME or FILE.toml; by default every record of the store, of any kind.
        attention: The row, as tables name it: primal[rank=8], or MODULE:CLASS; with --suite.
        store: Folder of records.
        out: Folder of published records.
    """
    from harness import api

    files, count = api.pack(store, out, suite=suite, row=attention)
    text = f"{count} records; check a row with: harness check FILE.jsonl"
    return Answer(text, {"files": files, "records": count}, files=files)


app = group(name="harness")
for function in (run, status, cost, check, list_, report, advise, site, pack):
    add_command(app, function)
app.add_typer(data, name="data")
app.add_typer(study, name="study")


def _print_version(requested: bool) -> bool:
    if requested:
        from importlib import metadata

        typer.echo(f"harness {metadata.version('attention-harness')}")
        raise typer.Exit
    return False


VERSION = typer.Option(
    "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
)


@app.callback()
def common(version: Annotated[bool, VERSION] = False) -> None:
    """Compare attention variants: accuracy, speed and memory, measured in the same way for all."""
