"""The pages of a store: what is shown of it, the results, the files, and comparisons of rows."""

import re
import warnings
from collections.abc import Collection, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from harness import stores
from harness.catalogue import described
from harness.records import frame
from harness.records.fields import require_known
from harness.records.store import CostStore
from harness.records.suites import Suite, find, names
from reports import cost, leaderboard, papers
from reports.pages import suite as suite_pages
from reports.pages.suite import Tables, tables
from reports.statistics import between, joined
from reports.studies import study_files
from reports.suite_results import is_of_suite
from reports.text import frame_csv, text_table, without_nan
from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.records.record import Record
    from harness.studies import Study
    from harness.suite import Step


class Selection(NamedTuple):
    """The part of a store that pages show: of these suites, variants and questions, or of all.

    Without suites the leaderboard is shown as well. `published` adds the published runs to suites.
    """

    suites: Sequence[str] = ()
    published: bool = False
    attentions: Sequence[str] = ()
    questions: Sequence[str] = ()


class Results(NamedTuple):
    """The results in a store; `leaderboard` is of the runs that are in no suite's table."""

    content: stores.Content
    suites: list[Tables]
    leaderboard: leaderboard.Leaderboard
    steps: list[tuple[Suite, pd.DataFrame]]

    @property
    def differences(self) -> pd.DataFrame:
        """Between the rows of each suite and of the leaderboard."""
        return joined([*(of.pairs for of in self.suites), self.leaderboard.pairs])


ALL = Selection()


def results_in(
    content: stores.Content, shown: Selection = ALL, store: Path = stores.PUBLISHED
) -> Results:
    """Return the results in a store, whose content is given; see `Selection`."""
    runs, named = content.runs, {suite.key: suite for suite in map(find, shown.suites)}
    joint = content
    if shown.published and store.resolve() != stores.PUBLISHED.resolve():
        joint = stores.content(stores.PUBLISHED) | content
    known = {*joint.runs.get("row", ()), *joint.runs.get("attention", ())}
    require_known("variant of these runs", shown.attentions, known)
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
    return Results(content, suites, leaderboard.leaderboard(board, content.rules), steps)


def _tables(
    suite: Suite, content: stores.Content, shown: Selection, rows: Collection[str]
) -> Tables:
    """Return the tables of a suite; `rows` are those with runs of a user."""
    runs = content.runs
    every = {*runs.loc[runs["suite"] == suite.key, "row"]} if len(runs) else set()
    added = rows if every > {*rows} else ()
    return tables(
        suite, content.runs, content.rules, content.costs, described(),
        attentions=shown.attentions, questions=shown.questions, added=added,
    )  # fmt: skip


def _step_tables(costs: pd.DataFrame, files: Sequence[str]) -> list[tuple[Suite, pd.DataFrame]]:
    if costs.empty or not costs["level"].eq("step").any():
        return []
    from harness.suite import steps

    of_steps = [suite for suite in map(find, [*names(), *files]) if suite.level == "step"]
    found = [(s, step_frame(steps(s, s.questions, s.rows, "cpu"), costs)) for s in of_steps]
    return [(suite, measured) for suite, measured in found if len(measured)]


def step_frame(steps: "Sequence[Step]", costs: pd.DataFrame) -> pd.DataFrame:
    """The costs of training steps beside the published ones; see `reports.papers.step_costs`."""
    wanted = [{**step._asdict(), "shape": step.spec.shape} for step in steps]
    return papers.step_costs(pd.DataFrame(wanted).drop(columns="spec"), costs)


def files_of(found: Results, *, latex: Collection[str] = ()) -> dict[str, bytes]:
    """The pages of a store by name; the suites of `latex` have a file for LaTeX, too."""
    # It imports matplotlib, which other pages do when they draw.
    from reports import tuning

    files = {"pairs.csv": frame_csv(found.differences)}
    if len(found.leaderboard.runs) or not found.suites:
        files |= leaderboard.files(found.leaderboard, found.content.broken)
    files |= tuning.files(found.leaderboard.every) | cost.files(found.content.costs)
    for of in found.suites:
        files |= suite_pages.files(of, latex=of.suite.name in latex)
    for suite, steps in found.steps:
        files |= papers.step_files(steps, suite)
    return files


def summary(records: "Sequence[Record]", store: Path) -> tuple[list[dict[Hashable, Any]], str]:
    """The leaderboard of records, whose baselines are in a store: its lines, and as text."""
    runs = frame.of_records(records, CostStore.within(store).read()[0])
    found = leaderboard.leaderboard(runs, stores.rules_of(store))
    rows = without_nan(leaderboard.table(found)).to_dict("records")
    return rows, leaderboard.terminal(found)


def comparison(texts: Sequence[str], found: Results) -> tuple[pd.DataFrame, str]:
    """The differences between the rows that each text names as A,B, as a frame and as text.

    Holm's correction is over the comparisons that are named, in each question.
    """
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


def _pair(text: str, rows: set[str]) -> tuple[str, str]:
    """The two rows that a text names as A,B; `UserError` if it does not."""
    names = split(text)
    if len(names) != 2 or names[0] == names[1]:
        raise UserError(f"--compare {text!r} names no two variants; give A,B")
    require_known("variant of the tables", names, rows)
    return names[0], names[1]


def study_pages(kind: "type[Study]", folder: Path) -> dict[str, bytes]:
    """The files of a study, from all of its results in a store; none without any."""
    found = kind.frame(folder)
    if found.empty:
        return {}
    return study_files(kind.name, kind.head, kind.sections(found), [*kind.panels(found)], found)
