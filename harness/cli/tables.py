"""The tables of the suites in a store, and the comparison of two rows, for `harness report`."""

import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.records.suites import find, names
from zoo.registry import UserError, unknown

if TYPE_CHECKING:
    import pandas as pd

    from harness.records.suites import Suite
    from harness.suite import Step
    from reports.pages.suite import Tables

WIDTH = 100
"""Characters of a line."""


def suite_tables(
    runs: "pd.DataFrame", costs: "pd.DataFrame", rules: "pd.DataFrame", files: Sequence[str]
) -> "list[Tables]":
    """The frames of each suite that the runs of a store are of.

    Args:
        runs: of suites and others; see `harness.records.frame`, as of the others.
        costs: of `harness cost`.
        rules: the baselines of the tasks; see `harness.cli.report.rules_of`.
        files: of suites that are not built in; for any other there is a warning.

    Raises:
        UserError: one of the files is not a suite.
    """
    from reports.pages.suite import tables

    named = {suite.key: suite for suite in map(find, files)}
    found = []
    for key in sorted({*runs.get("suite", ())} - {""}):
        try:
            suite = named.get(key) or find(key)
        except UserError as error:
            warnings.warn(f"{error}; or give its file: --suite FILE.toml", stacklevel=2)
            continue
        found.append(tables(suite, runs, rules, costs))
    return found


def step_tables(costs: "pd.DataFrame", files: Sequence[str]) -> "list[tuple[Suite, pd.DataFrame]]":
    """Each suite whose results are costs of training steps, with those of a store.

    Args:
        costs: of `harness cost`, a frame.
        files: of suites that are not built in.
    """
    if costs.empty or not costs["level"].eq("step").any():
        return []
    from harness.suite import steps

    found = [
        (suite, step_frame(steps(suite, suite.questions, suite.rows, "cpu"), costs))
        for suite in map(find, [*names(), *files])
        if suite.level == "step"
    ]
    return [(suite, measured) for suite, measured in found if len(measured)]


def step_frame(steps: "Sequence[Step]", costs: "pd.DataFrame") -> "pd.DataFrame":
    """The costs of training steps beside the published ones; see `reports.paper_costs.steps`."""
    import pandas as pd

    from reports import paper_costs

    wanted = [{**step._asdict(), "shape": step.spec.shape} for step in steps]
    return paper_costs.steps(pd.DataFrame(wanted).drop(columns="spec"), costs)


def comparison(text: str, pairs: "pd.DataFrame", suites: "Sequence[Tables]") -> str:
    """The differences between the two rows that `text` names as A,B, as text.

    Raises:
        UserError: it names another number of rows, or one that no table compares.
    """
    from reports.pairs import between
    from reports.text import text_table

    # A comma in brackets is part of a name: delta[negative=True,rank=2].
    names = [name.strip() for name in re.split(r",(?![^\[(]*[\])])", text)]
    answers = [of.answers for of in suites]
    known = {*pairs["first"], *pairs["second"], *(row for own in answers for row in own["row"])}
    if len(names) != 2 or names[0] == names[1]:
        raise UserError(f"--compare {text!r} names no two rows; give A,B")
    for name in names:
        if name not in known:
            raise UserError(unknown("row", name, known))
    lines = [
        [
            f"{one.table}, {one.question}", f"{one.difference:+.3g}",
            f"[{one.low:+.3g}, {one.high:+.3g}]", f"{one.p:.2g}", f"{one.p_holm:.2g}",
        ]
        for one in between(pairs, *names).itertuples()
    ]  # fmt: skip
    head = [f"{names[0]} minus {names[1]}", "difference", "95 % interval", "p", "p (Holm)"]
    parts = [text_table(head, lines, WIDTH)] if lines else []
    for own in answers:
        missing = own[own["row"].isin(names) & (own["not_compared"] != "")]
        parts += [f"{one.question}: {one.row}: {one.not_compared}" for one in missing.itertuples()]
    return "\n".join(parts) or f"no table compares {names[0]} with {names[1]}"
