"""Writes docs/findings.md: `python -m harness.cli.findings`.

What shallow models reach on the tasks of the Long Range Arena, and which published accuracies that
explains. A task that has a record is not fitted again.
"""

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.arguments import path
from harness.cli.process import script
from harness.cli.report import write_pages
from harness.records.files import require_page
from harness.records.shallow import read_studies, write_study
from harness.shallow import SETTINGS, study
from reports.pages.findings import findings
from zoo.registry import UserError, unknown

STORE = Path("results/shallow")


def main(
    tasks: Annotated[str, typer.Option(help="Tasks to fit, separated by commas.")] = ",".join(
        SETTINGS
    ),
    rerun: Annotated[bool, typer.Option(help="Fit tasks that have a record as well.")] = False,
    store: Annotated[Path, typer.Option(parser=path, help="Folder of the records.")] = STORE,
    out: Annotated[Path, typer.Option(parser=path, help="The page to write.")] = Path(
        "docs/findings.md"
    ),
) -> None:
    """Fit the shallow models of each task that has no record, and write the page."""
    chosen = [name for name in tasks.split(",") if name]
    for name in chosen:
        if name not in SETTINGS:
            raise UserError(unknown("task", name, SETTINGS))
    require_page(out)
    for name in chosen:
        if rerun or not (store / f"{name}.json").exists():
            typer.echo(write_study(store, study(name)))
    write_pages({out: findings(read_studies(store)).encode()})


if __name__ == "__main__":
    script("findings", main)
