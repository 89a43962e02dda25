"""`harness report`: write pages from the records of a store."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from harness.cli.arguments import JsonOption, StoreOption, path
from harness.cli.process import Answer
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
    baselines: Annotated[
        bool,
        typer.Option("--baselines", help="First fit the baselines of tasks that lack them."),
    ] = False,
    suite: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="A suite that is not built in; repeatable."),
    ] = None,
    compare: Annotated[
        str,
        typer.Option(metavar="A,B", help="Print how two rows differ; no file is written."),
    ] = "",
    latex: Annotated[
        bool, typer.Option("--latex", help="Write the matrix of each suite for LaTeX, too.")
    ] = False,
    publish: Annotated[
        bool,
        typer.Option("--publish", help="Write the answers to built-in suites into the package."),
    ] = False,
    as_json: JsonOption = False,
) -> Answer:
    """Write a page of each suite, the leaderboard, and the pages of tuning and costs."""
    from harness.cli.baselines import fit
    from harness.cli.suite_results import published_tables
    from harness.cli.tables import comparison, is_of_suite, suite_tables
    from harness.records.files import require_writable
    from harness.records.store import CostStore
    from harness.records.suites import FOLDER, names
    from reports import pages, pairs, tables
    from reports.pages import suite as suite_pages
    from reports.text import frame_csv

    if not store.is_dir():
        raise UserError(f"store {str(store)!r} is not a folder; make records with: harness run")
    folder = store if out is None else out
    records, broken = read(store, curves=False)
    complete = not baselines or fit(records, store)
    records = attach(records, store) if baselines else records
    costs = with_warnings(CostStore.within(store).read())[0]
    suites = suite_tables(records, costs, store, suite or ())
    records = [record for record in records if not is_of_suite(record)]
    differences = pairs.joined(
        [*(of.pairs for of in suites), pairs.of_boards(tables.boards(records))]
    )
    if compare:
        text = comparison(compare, differences, suites)
        return Answer(differences.to_dict("records") if as_json else text)
    updated = _updated(readme, records, costs) if readme else ""
    require_writable(folder, str(folder), "give another --out")
    made = pages.files(records, broken) | {"pairs.csv": frame_csv(differences)}
    made |= pages.tuning_files(records) | pages.cost_files(costs)
    for of in suites:
        made |= suite_pages.files(of, latex=latex)
    files = within(folder, made)
    if publish:
        files |= {
            FOLDER / f"{of.suite.name}.csv": frame_csv(suite_pages.published(of))
            for of in suites
            if of.suite.name in names()
        }
        files |= published_tables([of.suite for of in suites if of.suite.name in names()], store)
    written = write_pages(files | ({readme: updated.encode()} if readme else {}))
    code = 0 if complete else 1
    if as_json:
        rows, cost_rows = tables.rows_of(records), tables.cost_rows(costs)
        answers = [line for of in suites for line in of.answers.to_dict("records")]
        return Answer(
            {"answers": answers, "rows": rows, "costs": cost_rows, "files": written}, code
        )
    parts = [*map(suite_pages.terminal, suites), *([tables.summary(records)] if records else [])]
    if not parts:
        parts = [tables.cost_summary(costs) if costs else tables.summary(records)]
    return Answer("\n" + "\n\n".join(parts), code)


def within(folder: Path, files: Mapping[str, bytes]) -> dict[Path, bytes]:
    """The files by their path in `folder`."""
    return {folder / name: content for name, content in files.items()}


def write_pages(files: Mapping[Path, bytes]) -> list[Path]:
    """Write all files, or none of them; print and return their paths.

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
    for file in files:
        typer.echo(printable(str(file)))
    return [*files]


def read(store: Path, *, curves: bool = True) -> "tuple[list[Record], list[Broken]]":
    """Every record of a store, with the baselines of its task.

    There is a warning for each file that is not a record. Without `curves` records have the last
    point of their curves alone.
    """
    from harness.records.store import Store

    folder = Store(store)
    records, broken = with_warnings(
        folder.read() if curves else folder.read(lambda record: record.without_curve)
    )
    return attach(records, store), broken


def attach(records: "Sequence[Record]", folder: Path) -> "list[Record]":
    """The records with the baselines that the store in `folder` has of their tasks."""
    from harness.records.baselines import with_baselines
    from harness.records.store import BaselineStore
    from tasks import BASELINES_VERSION

    found, _ = with_warnings(BaselineStore.within(folder).read())
    return with_baselines(records, found, BASELINES_VERSION)


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
