"""`harness report`: write pages from the records of a store."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness import stores
from harness.arguments import Stored, names_in
from harness.cli.files import within, write_pages
from harness.cli.process import Answer
from zoo.registry import UserError, printable, unknown

if TYPE_CHECKING:
    from harness.report import Selection


@dataclass(frozen=True, kw_only=True)
class ReportOptions(Stored):
    """The options of `harness report`.

    Attributes:
        out: Folder of the pages; by default the store itself.
        baselines: First fit the baselines of tasks that lack them.
        suite: Show these suites alone: NAME or FILE.toml, repeatable; by default all in the store.
        with_published: Add the published runs to each suite; by default where --suite names one.
        attention: Show these variants alone: A, A+B, or A,A+B,...; by default all.
        questions: Show these questions of suites alone, separated by commas; by default all.
        compare: Print how two variants A,B differ; repeatable; no file is written.
        latex: Write the matrix of each suite for LaTeX, too.
        curves: Draw loss and score on dev against steps and seconds, too.
        task: Of the curves: TASK or TASK,TASK,...; by default all.
        tensorboard: Folder for the curves as event files of TensorBoard.
    """

    out: Path | None = None
    baselines: bool = False
    suite: list[str] | None = None
    with_published: bool | None = None
    attention: list[str] | None = None
    questions: str = ""
    compare: list[str] | None = None
    latex: bool = False
    curves: bool = False
    task: list[str] | None = None
    tensorboard: Path | None = None


def report(options: ReportOptions) -> Answer:
    """Write a page of each suite, the leaderboard, and the pages of tuning and costs."""
    from harness.records.files import require_writable
    from harness.records.store import require_folder
    from harness.report import comparison, files_of, results_in
    from reports import cost, leaderboard
    from reports.pages import suite as suite_pages
    from reports.text import without_nan

    store, as_json, complete = options.store, options.as_json, True
    require_folder(store)
    folder = options.out or store
    if options.baselines:
        from harness.cli.progress import shown
        from harness.runs import fit_baselines

        complete = fit_baselines(stores.read(store, curves=False)[0], store, shown())
    content = stores.content(store)
    stores.require_records(content, store)
    found = results_in(content, _selection(options), store)
    if options.compare:
        compared, text = comparison(options.compare, found)
        return Answer(compared.to_dict("records") if as_json else text)
    curves = _curves(options) if options.curves or options.tensorboard else {}
    names = {of.suite.name for of in found.suites}
    # A file that is there already would be of older records.
    latex = {name for name in names if options.latex or (folder / f"{name}.tex").is_file()}
    files = within(folder, {**files_of(found, latex=latex), **curves})
    require_writable(folder, str(folder), "give another --out")
    written, code = write_pages(files), 0 if complete else 1
    for path in () if options.suite else sorted(folder.glob("*-answers.csv")):
        if path not in files:
            name = path.name.removesuffix("-answers.csv")
            warnings.warn(f"pages of {name} in {folder} are of an earlier report", stacklevel=2)
    costs = found.content.costs
    if as_json:
        rows = without_nan(leaderboard.table(found.leaderboard)).to_dict("records")
        answers = [line for of in found.suites for line in of.answers.to_dict("records")]
        lines = cost.lines(costs)
        return Answer({"answers": answers, "rows": rows, "costs": lines, "files": written}, code)
    tables = [*map(suite_pages.terminal, found.suites)]
    if len(found.leaderboard.rows) or (costs.empty and not tables):
        tables.append(leaderboard.terminal(found.leaderboard))
    return Answer("\n" + "\n\n".join(tables or [cost.terminal(costs)]), code)


def _curves(options: ReportOptions) -> dict[str, bytes]:
    """The table and the figures of the curves; event files are written."""
    from harness.events import write_events
    from harness.records import frame
    from reports import curves

    tasks, attentions = names_in(options.task or []), names_in(options.attention or [])
    records = [
        run
        for run in stores.read(options.store)[0]
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


def _selection(options: ReportOptions) -> "Selection":
    from harness.records.suites import find, names
    from harness.report import Selection, split

    named = [*map(find, options.suite or ())]
    keys = [suite.key for suite in named]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise UserError(f"--suite names {min(twice)} twice; rename a file, or leave one out")
    questions = names_in([options.questions]) if options.questions else []
    for name in questions if named else ():
        every = {question.name for suite in named for question in suite.questions}
        if name not in every:
            raise UserError(unknown("question", name, every))
    published = options.with_published
    if published is None:
        built_in = any(suite.name in names() for suite in named)
        published = built_in and stores.PUBLISHED.is_dir()
    elif published and not stores.PUBLISHED.is_dir():
        raise UserError(
            f"--with-published is not possible: {stores.PUBLISHED} is not a folder; use a clone"
            " of the repository"
        )
    attentions = [name for text in options.attention or () for name in split(text)]
    return Selection(options.suite or (), published, attentions, questions)
