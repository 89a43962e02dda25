"""`harness report`: write pages from the records of a store."""

import re
import warnings
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from harness import stores
from harness.cli.arguments import Stored, names_in
from harness.cli.files import within, write_pages
from harness.cli.process import Answer
from zoo.registry import UserError, printable, unknown

if TYPE_CHECKING:
    import pandas as pd

    from harness.records.record import Record
    from harness.records.suites import Suite
    from harness.suite import Step
    from reports.leaderboard import Leaderboard
    from reports.pages.suite import Tables


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
    found = results_in(content, Selection.of(options), store)
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


class Selection(NamedTuple):
    """The part of a store that pages show.

    Attributes:
        suites: names or files; empty for all, and the leaderboard.
        published: whether suites have the published runs, too.
        attentions, questions: empty for all.
    """

    suites: Sequence[str] = ()
    published: bool = False
    attentions: Sequence[str] = ()
    questions: Sequence[str] = ()

    @classmethod
    def of(cls, options: ReportOptions) -> "Selection":
        """Read the options of the command; raise `UserError` for a name that no suite has."""
        from harness.records.suites import find, names

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
        return cls(options.suite or (), published, attentions, questions)


class Results(NamedTuple):
    """The results in a store; `leaderboard` is of the runs that are in no suite's table."""

    content: stores.Content
    suites: "list[Tables]"
    leaderboard: "Leaderboard"
    steps: "list[tuple[Suite, pd.DataFrame]]"

    @property
    def differences(self) -> "pd.DataFrame":
        """Between the rows of each suite and of the leaderboard."""
        from reports.statistics import joined

        return joined([*(of.pairs for of in self.suites), self.leaderboard.pairs])


ALL = Selection()


def results_in(
    content: stores.Content, shown: Selection = ALL, store: Path = stores.PUBLISHED
) -> Results:
    """Return the results in a store, whose content is given; see `Selection`."""
    import numpy as np

    from harness.records.suites import find
    from reports.leaderboard import leaderboard
    from reports.suite_results import is_of_suite

    runs, named = content.runs, {suite.key: suite for suite in map(find, shown.suites)}
    joint = content
    if shown.published and store.resolve() != stores.PUBLISHED.resolve():
        joint = stores.content(stores.PUBLISHED, store)
    _require_variants(shown.attentions, joint.runs)
    of_suite, suites = np.array(runs.get("suite", ()), dtype=object), []
    is_other = of_suite == ""
    for key in named or sorted({*of_suite} - {""}):
        try:
            suite = named.get(key) or find(key)
        except UserError as error:
            warnings.warn(f"{error}; or give its file: --suite FILE.toml", stacklevel=2)
            continue
        if suite.level == "run":
            is_row = is_of_suite(runs, suite).to_numpy()
            is_other |= (of_suite == key) & ~is_row
            suites.append(_tables(suite, joint, shown, {*runs["row"][is_row]} if len(runs) else ()))
    board = runs[is_other & (not named)] if len(runs) else runs
    if shown.attentions and len(board):
        board = board[board["attention"].isin(shown.attentions)]
    steps = _step_tables(content.costs, shown.suites)
    return Results(content, suites, leaderboard(board, content.rules), steps)


def _require_variants(names: Sequence[str], runs: "pd.DataFrame") -> None:
    """Raise `UserError` for a name that no run has, as a variant or as a row."""
    known = {*runs.get("row", ()), *runs.get("attention", ())}
    for name in names:
        if name not in known:
            raise UserError(unknown("variant of these runs", name, known))


def _tables(
    suite: "Suite", content: stores.Content, shown: Selection, rows: Collection[str]
) -> "Tables":
    """Return the tables of a suite; `rows` are those with runs of a user."""
    from harness.catalogue import described
    from reports.pages.suite import tables

    added = rows if {*content.runs.get("row", ())} > {*rows} else ()
    return tables(
        suite, content.runs, content.rules, content.costs, described(),
        attentions=shown.attentions, questions=shown.questions, added=added,
    )  # fmt: skip


def _step_tables(costs: "pd.DataFrame", files: Sequence[str]) -> "list[tuple[Suite, pd.DataFrame]]":
    """Each suite whose results are costs of training steps, with these costs."""
    if costs.empty or not costs["level"].eq("step").any():
        return []
    from harness.records.suites import find, names
    from harness.suite import steps

    of_steps = [suite for suite in map(find, [*names(), *files]) if suite.level == "step"]
    found = [(s, step_frame(steps(s, s.questions, s.rows, "cpu"), costs)) for s in of_steps]
    return [(suite, measured) for suite, measured in found if len(measured)]


def step_frame(steps: "Sequence[Step]", costs: "pd.DataFrame") -> "pd.DataFrame":
    """The costs of training steps beside the published ones; see `reports.papers.step_costs`."""
    import pandas as pd

    from reports import papers

    wanted = [{**step._asdict(), "shape": step.spec.shape} for step in steps]
    return papers.step_costs(pd.DataFrame(wanted).drop(columns="spec"), costs)


def files_of(found: Results, *, latex: Collection[str] = ()) -> dict[str, bytes]:
    """The pages of a store by name; the suites of `latex` have a file for LaTeX, too."""
    from reports import cost, leaderboard, papers, tuning
    from reports.pages import suite as suite_pages
    from reports.text import frame_csv

    files = {"pairs.csv": frame_csv(found.differences)}
    if len(found.leaderboard.runs) or not found.suites:
        files |= leaderboard.files(found.leaderboard, found.content.broken)
    files |= tuning.files(found.leaderboard.every) | cost.files(found.content.costs)
    for of in found.suites:
        files |= suite_pages.files(of, latex=of.suite.name in latex)
    for suite, steps in found.steps:
        files |= papers.step_files(steps, suite)
    return files


def summary(records: "Sequence[Record]", store: Path) -> "tuple[list[dict[Hashable, Any]], str]":
    """The leaderboard of records, whose baselines are in a store: its lines, and as text."""
    from harness.records import frame
    from harness.records.store import CostStore
    from reports import leaderboard
    from reports.text import without_nan

    runs = frame.of_records(records, CostStore.within(store).read()[0])
    found = leaderboard.leaderboard(runs, stores.rules_of(store))
    rows = without_nan(leaderboard.table(found)).to_dict("records")
    return rows, leaderboard.terminal(found)


def comparison(texts: Sequence[str], found: Results) -> "tuple[pd.DataFrame, str]":
    """The differences between the rows that each text names as A,B, as a frame and as text.

    Holm's correction is over the comparisons that are named, in each question.
    """
    from reports.statistics import between
    from reports.text import text_table

    answers = [of.answers for of in found.suites]
    answers += [found.leaderboard.rows] if len(found.leaderboard.rows) else []
    rows = {row for table in answers for row in table["row"]}
    named = [_pair(text, rows) for text in texts]
    compared = between(found.differences, named)
    head = ["comparison", "question", "difference", "95 % interval", "p", f"p (Holm, {len(named)})"]
    lines = [
        [
            f"{pair.first} minus {pair.second}",
            f"{pair.table}, {pair.question}{' (outdated)' if pair.outdated else ''}",
            f"{pair.difference:+.3g}", f"[{pair.low:+.3g}, {pair.high:+.3g}]", f"{pair.p:.2g}",
            f"{pair.p_holm:.2g}",
        ]
        for pair in compared.itertuples()
    ]  # fmt: skip
    lines = [line if len(named) > 1 else line[1:] for line in lines]
    head = head if len(named) > 1 else [f"{' minus '.join(named[0])}", *head[2:]]
    found_texts = [text_table(head, lines)] if lines else []
    for table in answers:
        of_rows = table["row"].isin({name for pair in named for name in pair})
        missing = table[of_rows & (table["not_compared"] != "")]
        found_texts += [f"{a.question}: {a.row}: {a.not_compared}" for a in missing.itertuples()]
    none = "; ".join(f"no table compares {first} with {second}" for first, second in named)
    return compared, "\n".join(found_texts) or none


def split(text: str) -> list[str]:
    """Split a text at its commas, but not in brackets: delta[negative=True,steps=2] is one name."""
    return [name.strip() for name in re.split(r",(?![^\[(]*[\])])", text)]


def _pair(text: str, rows: "set[str]") -> tuple[str, str]:
    """The two rows that a text names as A,B; `UserError` if it does not."""
    names = split(text)
    if len(names) != 2 or names[0] == names[1]:
        raise UserError(f"--compare {text!r} names no two variants; give A,B")
    for name in names:
        if name not in rows:
            raise UserError(unknown("variant of the tables", name, rows))
    return names[0], names[1]
