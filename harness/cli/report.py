"""`harness report`: write pages from the records of a store."""

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import typer

from harness.cli.arguments import Stored, names_in
from harness.cli.process import Answer
from zoo.registry import UserError, printable

if TYPE_CHECKING:
    import pandas as pd

    from harness.records.record import Record
    from harness.records.store import Broken
    from harness.records.suites import Suite
    from reports.leaderboard import Leaderboard
    from reports.pages.suite import Tables

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ReportOptions(Stored):
    """The options of `harness report`.

    Attributes:
        out: Folder of the pages; by default the store itself.
        baselines: First fit the baselines of tasks that lack them.
        suite: File of a suite that is not built in; repeatable.
        compare: Print how two rows A,B differ; no file is written.
        latex: Write the matrix of each suite for LaTeX, too.
        curves: Draw loss and score on dev against steps and seconds, too.
        task: Of the curves: TASK or TASK,TASK,...; all if none is given.
        attention: Of the curves: A, A+B, or A,A+B,...; all if none is given.
        tensorboard: Folder for the curves as event files of TensorBoard.
    """

    out: Path | None = None
    baselines: bool = False
    suite: list[str] | None = None
    compare: str = ""
    latex: bool = False
    curves: bool = False
    task: list[str] | None = None
    attention: list[str] | None = None
    tensorboard: Path | None = None


def report(options: ReportOptions) -> Answer:
    """Write a page of each suite, the leaderboard, and the pages of tuning and costs."""
    from harness.cli.baselines import fit
    from harness.cli.tables import comparison
    from harness.records.files import require_writable
    from reports import cost, leaderboard
    from reports.pages import suite as suite_pages
    from reports.text import frame_lines

    store, as_json = options.store, options.as_json
    if not store.is_dir():
        raise UserError(f"store {str(store)!r} is not a folder; make records with: harness run")
    folder = options.out or store
    complete = not options.baselines or fit(read(store, curves=False)[0], store)
    found = _gather(store, options.suite or ())
    if options.compare:
        differences = found.differences
        text = comparison(options.compare, differences, found.suites)
        return Answer(differences.to_dict("records") if as_json else text)
    curves = _curves(options) if options.curves or options.tensorboard else {}
    files = within(folder, {**_made(found, latex=options.latex), **curves})
    require_writable(folder, str(folder), "give another --out")
    written = write_pages(files)
    code = 0 if complete else 1
    if as_json:
        rows = frame_lines(leaderboard.table(found.leaderboard))
        answers = [line for of in found.suites for line in of.answers.to_dict("records")]
        costs = cost.lines(found.costs)
        return Answer({"answers": answers, "rows": rows, "costs": costs, "files": written}, code)
    parts = [*map(suite_pages.terminal, found.suites)]
    if len(found.leaderboard.rows) or found.costs.empty:
        parts.append(leaderboard.terminal(found.leaderboard))
    return Answer("\n" + "\n\n".join(parts or [cost.terminal(found.costs)]), code)


def _curves(options: ReportOptions) -> dict[str, bytes]:
    """The table and the figures of the curves; event files are written."""
    from harness.events import write_events
    from harness.records import frame
    from reports import curves

    tasks, attentions = names_in(options.task or []), names_in(options.attention or [])
    records = [
        run
        for run in read(options.store)[0]
        if (not tasks or run.spec.task.name in tasks)
        and (not attentions or run.spec.attention in attentions)
    ]
    if not any(run.curve for run in records):
        raise UserError(
            f"store {str(options.store)!r} has no run with a curve and these names; make one with: "
            "harness run"
        )
    for folder in write_events(records, options.tensorboard) if options.tensorboard else ():
        typer.echo(printable(str(folder)))
    return curves.files(frame.of_records(records), frame.of_curves(records))


class _Store(NamedTuple):
    """What a store holds.

    Attributes:
        runs: of no suite.
        broken: files that are no records.
        costs: of `harness cost`.
        suites: the frames of each suite that runs are of.
        leaderboard: that of the other runs.
        steps: the suites whose results are costs of training steps, with these costs.
    """

    runs: "pd.DataFrame"
    broken: "list[Broken]"
    costs: "pd.DataFrame"
    suites: "list[Tables]"
    leaderboard: "Leaderboard"
    steps: "list[tuple[Suite, pd.DataFrame]]"

    @property
    def differences(self) -> "pd.DataFrame":
        """Between the rows of each suite and of the leaderboard."""
        from reports import pairs

        return pairs.joined([*(of.pairs for of in self.suites), self.leaderboard.pairs])


def _gather(store: Path, suites: Sequence[str] = ()) -> _Store:
    from harness.cli.tables import step_tables, suite_tables
    from harness.records import frame
    from harness.records.store import CostStore
    from reports.leaderboard import leaderboard

    records, broken = read(store, curves=False)
    costs = frame.of_costs(with_warnings(CostStore.within(store).read())[0])
    runs, rules = frame.of_records(records), rules_of(store)
    tables = suite_tables(runs, costs, rules, suites)
    others = runs[runs["suite"] == ""] if len(runs) else runs
    steps = step_tables(costs, suites)
    return _Store(others, broken, costs, tables, leaderboard(others, rules), steps)


def made(store: Path, root: Path) -> dict[Path, bytes]:
    """The files of a checkout that are made from a store: its pages, and what pages show of it.

    Raises:
        UserError: the store cannot be read.
    """
    from harness.cli import catalogue
    from harness.cli.suite_results import published_tables
    from harness.records.certificate import read_certificates
    from harness.records.suites import names
    from reports.markdown import insert
    from reports.pages.readme import readme_table
    from reports.pages.suite import published
    from reports.text import frame_csv

    found, suites = _gather(store), root / "harness" / "recipes" / "suites"
    files = within(store, _made(found, latex=False))
    files[root / "docs" / "variants.md"] = catalogue.page(
        found.costs, read_certificates(store)
    ).encode()
    # The README and the package have the answers of suites that no paper published.
    packaged = [of for of in found.suites if of.suite.name in names() and not of.suite.published]
    built_in = [of.suite for of in packaged]
    tables = published_tables(built_in, store)
    files |= {suites / path.name: content for path, content in tables.items()}
    for of in packaged:
        files[suites / f"{of.suite.name}.csv"] = frame_csv(published(of))
        readme = root / "README.md"
        text = insert(readme.read_text("utf-8"), of.suite.name, readme_table(of))
        files[readme] = text.encode()
    return files


def _made(found: _Store, *, latex: bool) -> dict[str, bytes]:
    """The pages of a store by name."""
    from reports import cost, leaderboard, paper_costs, tuning
    from reports.pages import suite as suite_pages
    from reports.text import frame_csv

    files = leaderboard.files(found.leaderboard, found.broken)
    files |= {"pairs.csv": frame_csv(found.differences)}
    files |= tuning.files(found.runs) | cost.files(found.costs)
    for of in found.suites:
        files |= suite_pages.files(of, latex=latex)
    for suite, steps in found.steps:
        files |= paper_costs.files(steps, suite)
    return files


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
    """Every record of a store.

    There is a warning for each file that is not a record. Without `curves` records have the last
    point of their curves alone.
    """
    from harness.records.store import Store

    folder = Store(store)
    return with_warnings(
        folder.read() if curves else folder.read(lambda record: record.without_curve)
    )


def rules_of(store: Path) -> "pd.DataFrame":
    """The complete baselines of this version of the tasks in a store, with a warning for others."""
    from harness.records.frame import of_baselines
    from harness.records.store import BaselineStore
    from tasks import BASELINES_VERSION

    rules = of_baselines(with_warnings(BaselineStore.within(store).read())[0])
    return rules[rules["complete"].astype(bool) & (rules["version"] == BASELINES_VERSION)]


def summary(records: "Sequence[Record]", store: Path) -> "tuple[list[dict[Hashable, Any]], str]":
    """The leaderboard of records, whose baselines are in a store: its lines, and as text."""
    from harness.records import frame
    from reports import leaderboard
    from reports.text import frame_lines

    found = leaderboard.leaderboard(frame.of_records(records), rules_of(store))
    return frame_lines(leaderboard.table(found)), leaderboard.terminal(found)


def with_warnings(content: "tuple[list[T], list[Broken]]") -> "tuple[list[T], list[Broken]]":
    """The content of a store, with a warning for each file that is not a record."""
    for bad in content[1]:
        warnings.warn(f"{bad.path} is not a record and is left out: {bad.reason}", stacklevel=2)
    return content
