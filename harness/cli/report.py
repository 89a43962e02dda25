"""`harness report`: write pages from the records of a store."""

import re
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from harness.cli import stores
from harness.cli.arguments import Stored, names_in
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
    from harness.records.files import require_writable
    from reports import cost, leaderboard
    from reports.pages import suite as suite_pages
    from reports.text import without_nan

    store, as_json, complete = options.store, options.as_json, True
    stores.require_folder(store)
    folder = options.out or store
    if options.baselines:
        from harness.cli.runs import fit_baselines

        complete = fit_baselines(stores.read(store, curves=False)[0], store)
    content = stores.content(store)
    stores.require_records(content, store)
    found = results_in(content, options.suite or ())
    if options.compare:
        text = comparison(options.compare, found.differences, found.suites)
        return Answer(found.differences.to_dict("records") if as_json else text)
    curves = _curves(options) if options.curves or options.tensorboard else {}
    files = stores.within(folder, {**files_of(found, latex=options.latex), **curves})
    require_writable(folder, str(folder), "give another --out")
    written, code = stores.write_pages(files), 0 if complete else 1
    costs = found.content.costs
    if as_json:
        rows = without_nan(leaderboard.table(found.leaderboard)).to_dict("records")
        answers = [line for of in found.suites for line in of.answers.to_dict("records")]
        lines = cost.lines(costs)
        return Answer({"answers": answers, "rows": rows, "costs": lines, "files": written}, code)
    tables = [*map(suite_pages.terminal, found.suites)]
    if len(found.leaderboard.rows) or costs.empty:
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


class Results(NamedTuple):
    """What pages show of a store: `leaderboard` is of the runs that are of no suite."""

    content: stores.Content
    suites: "list[Tables]"
    leaderboard: "Leaderboard"
    steps: "list[tuple[Suite, pd.DataFrame]]"

    @property
    def differences(self) -> "pd.DataFrame":
        """Between the rows of each suite and of the leaderboard."""
        from reports.statistics import joined

        return joined([*(of.pairs for of in self.suites), self.leaderboard.pairs])


def results_in(content: stores.Content, files: Sequence[str] = ()) -> Results:
    """The results in a store, also of the suites of `files`, which are not built in."""
    from harness.records.suites import find
    from reports.leaderboard import leaderboard
    from reports.pages.suite import tables

    runs, rules, named = content.runs, content.rules, {s.key: s for s in map(find, files)}
    suites = []
    for key in sorted({*runs.get("suite", ())} - {""}):
        try:
            suite = named.get(key) or find(key)
        except UserError as error:
            warnings.warn(f"{error}; or give its file: --suite FILE.toml", stacklevel=2)
            continue
        suites.append(tables(suite, runs, rules, content.costs))
    others = runs[runs["suite"] == ""] if len(runs) else runs
    steps = _step_tables(content.costs, files)
    return Results(content, suites, leaderboard(others, rules), steps)


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


def files_of(found: Results, *, latex: bool = False) -> dict[str, bytes]:
    """The pages of a store by name."""
    from reports import cost, leaderboard, papers, tuning
    from reports.pages import suite as suite_pages
    from reports.text import frame_csv

    files = leaderboard.files(found.leaderboard, found.content.broken)
    files |= {"pairs.csv": frame_csv(found.differences)}
    files |= tuning.files(found.leaderboard.every) | cost.files(found.content.costs)
    for of in found.suites:
        files |= suite_pages.files(of, latex=latex)
    for suite, steps in found.steps:
        files |= papers.step_files(steps, suite)
    return files


def summary(records: "Sequence[Record]", store: Path) -> "tuple[list[dict[Hashable, Any]], str]":
    """The leaderboard of records, whose baselines are in a store: its lines, and as text."""
    from harness.records import frame
    from reports import leaderboard
    from reports.text import without_nan

    found = leaderboard.leaderboard(frame.of_records(records), stores.rules_of(store))
    rows = without_nan(leaderboard.table(found)).to_dict("records")
    return rows, leaderboard.terminal(found)


def comparison(text: str, pairs: "pd.DataFrame", suites: "Sequence[Tables]") -> str:
    """The differences between the two rows that `text` names as A,B; `UserError` if it does not."""
    from reports.statistics import between
    from reports.text import text_table

    # A comma in brackets is part of a name: delta[negative=True,rank=2].
    names = [name.strip() for name in re.split(r",(?![^\[(]*[\])])", text)]
    answers = [of.answers for of in suites]
    rows = {*pairs["first"], *pairs["second"], *(row for table in answers for row in table["row"])}
    if len(names) != 2 or names[0] == names[1]:
        raise UserError(f"--compare {text!r} names no two rows; give A,B")
    for name in names:
        if name not in rows:
            raise UserError(unknown("row", name, rows))
    lines = [
        [
            f"{pair.table}, {pair.question}", f"{pair.difference:+.3g}",
            f"[{pair.low:+.3g}, {pair.high:+.3g}]", f"{pair.p:.2g}", f"{pair.p_holm:.2g}",
        ]
        for pair in between(pairs, *names).itertuples()
    ]  # fmt: skip
    head = [f"{names[0]} minus {names[1]}", "difference", "95 % interval", "p", "p (Holm)"]
    texts = [text_table(head, lines)] if lines else []
    for table in answers:
        missing = table[table["row"].isin(names) & (table["not_compared"] != "")]
        texts += [f"{a.question}: {a.row}: {a.not_compared}" for a in missing.itertuples()]
    return "\n".join(texts) or f"no table compares {names[0]} with {names[1]}"
