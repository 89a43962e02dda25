"""The tables of the suites in a store, and the comparison of two rows, for `harness report`."""

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.records.suites import find
from zoo.registry import UserError, unknown

if TYPE_CHECKING:
    import pandas as pd

    from harness.records.cost import CostRecord
    from harness.records.record import Record
    from reports.pages.suite import Tables

WIDTH = 100
"""Characters of a line."""


def is_of_suite(record: "Record") -> bool:
    """Whether a run answers a question of a suite: leaderboards do not show it."""
    return "/" in record.spec.budget


def suite_tables(
    records: "Sequence[Record]",
    costs: "Sequence[CostRecord]",
    store: Path,
    files: Sequence[str],
) -> "list[Tables]":
    """The frames of each suite that the records of a store are of.

    Args:
        records: of runs, of suites and others.
        costs: of `harness cost`.
        store: the folder that has the baselines of their tasks.
        files: of suites that are not built in; for any other there is a warning.

    Raises:
        UserError: one of the files is not a suite.
    """
    keys = {record.spec.budget.partition("/")[0] for record in filter(is_of_suite, records)}
    given = {suite.key: suite for suite in map(find, files)}
    if not keys:
        return []
    from harness.records import frame
    from reports.pages.suite import tables
    from tasks import BASELINES_VERSION

    runs, rules = frame.of_records(filter(is_of_suite, records)), frame.baselines(store)
    rules = rules[(rules["version"] == BASELINES_VERSION) & rules["complete"]]
    found = []
    for key in sorted(keys):
        try:
            suite = given.get(key) or find(key)
        except UserError as error:
            warnings.warn(f"{error}; or give its file: --suite FILE.toml", stacklevel=2)
            continue
        found.append(tables(suite, runs, rules, frame.of_costs(costs)))
    return found


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
