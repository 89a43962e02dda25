"""`harness report`: write pages from the records of a store."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from harness.cli.arguments import StoreOption, path
from zoo.registry import UserError, printable

if TYPE_CHECKING:
    from harness.records.cost import CostRecord
    from harness.records.record import Record
    from harness.records.store import Broken

T = TypeVar("T")


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
    """Write the leaderboard, the pages of tuning and costs, their tables and their figures."""
    from harness.records.files import require_writable
    from harness.records.store import CostStore
    from reports import pages, tables

    if not store.is_dir():
        raise UserError(f"store {str(store)!r} is not a folder; make records with: harness run")
    folder = store if out is None else out
    records, broken = read(store, curves=False)
    costs = with_warnings(CostStore.within(store).read())[0]
    updated = _updated(readme, records, costs) if readme else ""
    require_writable(folder, str(folder), "give another --out")
    made = pages.files(records, broken) | pages.tuning_files(records) | pages.cost_files(costs)
    files = within(folder, made)
    write_pages(files | ({readme: updated.encode()} if readme else {}))
    only_costs = bool(costs) and not records
    typer.echo(f"\n{tables.cost_summary(costs) if only_costs else tables.summary(records)}")


def within(folder: Path, files: Mapping[str, bytes]) -> dict[Path, bytes]:
    """The files by their path in `folder`."""
    return {folder / name: content for name, content in files.items()}


def write_pages(files: Mapping[Path, bytes], *, quiet: bool = False) -> None:
    """Write all files, or none of them, and print their paths unless `quiet`.

    Raises:
        UserError: one cannot be written.
    """
    from harness.records.files import write_all

    try:
        write_all(files)
    except OSError as error:
        raise UserError(
            f"{error.filename} cannot be written ({error.strerror}); no page is changed; free "
            "space, or give another folder"
        ) from error
    for file in () if quiet else files:
        typer.echo(printable(str(file)))


def read(store: Path, *, curves: bool = True) -> "tuple[list[Record], list[Broken]]":
    """Every record of a store, with a warning for each file that is not a record.

    Without `curves` records have the last point of their curves alone.
    """
    from harness.records.store import Store

    folder = Store(store)
    return with_warnings(
        folder.read() if curves else folder.read(lambda record: record.without_curve)
    )


def with_warnings(content: "tuple[list[T], list[Broken]]") -> "tuple[list[T], list[Broken]]":
    """The content of a store, with a warning for each file that is not a record."""
    for bad in content[1]:
        warnings.warn(f"{bad.path} is not a record and is left out: {bad.reason}", stacklevel=2)
    return content


def _updated(readme: Path, records: "Sequence[Record]", costs: "Sequence[CostRecord]") -> str:
    from harness.cli import models
    from reports import markdown, pages

    if readme.exists() and not readme.is_file():
        raise UserError(f"--readme {readme} is not a regular file; give a page")
    try:
        page = pages.embed(readme.read_text("utf-8"), records)
        if f"<!-- {models.MARK} -->" not in page:
            return page
        return markdown.insert(page, models.MARK, models.models_table(costs))
    except OSError as error:
        raise UserError(
            f"--readme {readme} cannot be read ({error.strerror}); give another page"
        ) from error
    except ValueError as error:
        raise UserError(f"--readme {readme} cannot be updated: {error}") from error
