"""`harness report`: write pages from the records of a store."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.arguments import StoreOption, path
from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.records.record import Record
    from harness.records.store import Broken


def report(
    store: StoreOption = Path("runs"),
    out: Annotated[
        Path | None,
        typer.Option(parser=path, help="Folder of the pages; by default the store itself."),
    ] = None,
    readme: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            help="A page to update between its marks <!-- leaderboard --> and <!-- models -->.",
        ),
    ] = None,
) -> None:
    """Write leaderboard.md, leaderboard.csv and the figures, and print the summary."""
    from harness.records.files import require_writable, write_all, write_atomic
    from reports import pages, tables

    if not store.is_dir():
        raise UserError(f"store {str(store)!r} is not a folder; make records with: harness run")
    folder = store if out is None else out
    records, broken = read(store)
    updated = _updated(readme, records) if readme else ""
    require_writable(folder, str(folder), "give another --out")
    try:
        for file in write_all(folder, pages.files(records, broken)):
            typer.echo(file)
        if readme:
            typer.echo(write_atomic(readme, updated.encode()))
    except OSError as error:
        raise UserError(
            f"{error.filename or folder} cannot be written ({error.strerror})"
        ) from error
    typer.echo(f"\n{tables.summary(records)}")


def read(store: Path) -> "tuple[list[Record], list[Broken]]":
    """Every record of a store, with a warning for each file that is not a record."""
    from harness.records.store import Store

    records, broken = Store(store).read()
    for bad in broken:
        typer.echo(f"warning: {bad.path} is not a record and is left out: {bad.reason}", err=True)
    return records, broken


def _updated(readme: Path, records: "Sequence[Record]") -> str:
    from harness.cli import models
    from reports import markdown, pages

    if readme.exists() and not readme.is_file():
        raise UserError(f"--readme {readme} is not a regular file; give a page")
    try:
        page = pages.embed(readme.read_text("utf-8"), records)
        if f"<!-- {models.MARK} -->" not in page:
            return page
        rows = [[markdown.escape(cell) for cell in row] for row in models.rows()]
        return markdown.insert(page, models.MARK, markdown.table(models.HEAD, rows))
    except OSError as error:
        raise UserError(
            f"--readme {readme} cannot be read ({error.strerror}); give another page"
        ) from error
    except ValueError as error:
        raise UserError(f"--readme {readme} cannot be updated: {error}") from error
