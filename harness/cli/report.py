"""`harness report`: write pages from the records of a store."""

import gc
import shlex
import warnings
from dataclasses import dataclass
from pathlib import Path

from harness.arguments import names_in, rows_in, split, tasks_in
from harness.cli.process import Answer
from zoo.registry import UserError, uncollected


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The options of `harness report`.

    Attributes:
        out: Folder of the pages; by default the store itself.
        baselines: First fit the baselines of tasks that lack them.
        suite: Show only these suites: NAME or FILE.toml, repeatable; by default all runs.
        with_published: Add the published runs to each suite; by default where --suite names one.
        attention: Show only these variants: A, A+B, MODULE:CLASS, or A,A+B,...; by default all.
        questions: Show only these questions of suites, separated by commas; by default all.
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
    store: Path = Path("runs")


@uncollected()
def report(options: ReportOptions) -> Answer:
    """Write the pages of a store.

    A page of each suite, one of the runs of no suite, and the pages of costs.
    """
    from harness import stores
    from harness.records.store import require_folder
    from reports import cost
    from reports import store as pages
    from reports.pages.suite import answers_of, terminal

    # Before notes say how classes are typed.
    compared = [rows_in(split(text)) for text in options.compare or ()]
    # A comparison of published rows needs no store.
    no_store = options.store == ReportOptions.store and not options.store.exists()
    is_published = no_store and bool(options.compare and options.suite)
    store, complete = require_folder(stores.PUBLISHED if is_published else options.store), True
    content = stores.content(store, curves=options.curves or bool(options.tensorboard))
    if options.baselines:
        from harness.runs import fit_baselines

        complete = fit_baselines(content.records, store)
    if not content.records and not content.broken and content.costs.empty:
        remedy = f"harness run --attention primal --store {shlex.quote(str(store))}"
        raise UserError(f"store {str(store)!r} has no record to report; make some with: {remedy}")
    found = pages.results_in(
        content, options.suite or (), published=options.with_published,
        attentions=options.attention or (),
        questions=names_in([options.questions]) if options.questions else (),
    )  # fmt: skip
    if options.compare:
        table, text = pages.comparison(compared, found)
        return Answer(text, table.to_dict("records"))
    folder = options.out or store
    files = pages.write_report(
        found, folder, latex=options.latex, curves=options.curves, tensorboard=options.tensorboard,
        tasks=tasks_in(names_in(options.task or [])),
        attentions=rows_in(names_in(options.attention or [])),
    )  # fmt: skip
    for path in () if options.suite else sorted({*folder.glob("*-answers.csv")} - {*files}):
        name = path.name.removesuffix("-answers.csv")
        warnings.warn(f"pages of {name} in {folder} are of an earlier report", stacklevel=2)
    costs = found.content.costs
    document = {"answers": answers_of(*found.suites), "costs": cost.lines(costs), "files": files}
    texts = [*map(terminal, found.suites)] or [cost.terminal(costs)]
    gc.freeze()  # The command ends: collecting 20,000 records would take two seconds
    return Answer("\n" + "\n\n".join(texts), document, int(not complete), files)
