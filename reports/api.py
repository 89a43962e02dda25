"""Tables and advice of a suite, as `harness.matrix` and `harness.advise`."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from harness import stores
from harness.api import Folders, Names, Natural, Text, folders_of, names_of
from harness.catalogue import described
from harness.records.fields import require_known
from harness.records.store import require_folder
from harness.records.suites import FOLDER, find
from reports import advice
from reports.advice import Values
from reports.pages.suite import tables
from reports.suite_results import results
from zoo.registry import UserError, checked, unknown


@checked
def matrix(suite: Text = "laptop", store: Folders | None = None) -> pd.DataFrame:
    """Return the matrix of a suite, a row for each variant that was run.

    `suite` is its name or a TOML file; `store` a folder of records, or several, None for the
    published. Columns are those of `reports.matrix.matrix` with the form before each name,
    `causal.recall`, `bidirectional.time.4096`; `outdated` is True where a run of the row is.
    """
    folders = [*map(require_folder, folders_of(store or ()))] or stores.stores_of(None)
    chosen, found = find(suite), stores.results_of(suite, *folders)
    return tables(chosen, found.runs, found.rules, found.costs, described()).joined


@checked
def advise(
    needs: Names, length: Annotated[int, Field(ge=1)], operation: Text = "train", *,
    memory: Natural | None = None, suite: Text = "laptop", store: Text | Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the variants that no other beats in accuracy, time and memory at once.

    Args:
        needs: questions of one form, by name or title, or what their names begin or else end
            with: `recall`.
        length: tokens of a sample, at which costs are compared; the nearest measured one counts.
        operation: `train`, `forward`, `prefill` or `decode`.
        memory: the most bytes of a sample; None for any.
        suite: its name, or a TOML file.
        store: records in addition to the published ones.

    Returns:
        See `reports.advice.rules.advise`; and the `query` and the `setting` of its costs.
    """
    folder = Path(store) if store else None
    table, query, result = ask(
        names_of(needs), operation, length, memory, suite=suite, store=folder
    )
    return {"query": query, "setting": table["setting"], **result}


def ask(
    needs: Sequence[str], operation: str, length: int, memory: float | None = None, *,
    suite: str = "laptop", store: Path | None = None,
) -> tuple[Values, Values, Values]:  # fmt: skip
    # Table, query and result; costs of `store` replace the published ones.
    chosen = find(suite)
    names = [question.name for question in chosen.questions]
    wanted: dict[str, None] = {}
    for need in needs:
        found = [question.name for question in chosen.questions
                 if need in (question.name, question.title)
                 or question.name.startswith(f"{need}-")]  # fmt: skip
        found = found or [name for name in names if name.endswith(f"-{need}")]
        if not found:
            raise UserError(unknown(f"question of {chosen.key}", need, names))
        wanted |= dict.fromkeys(found)
    require_known("pass", [operation], advice.PASSES)
    query: Values = {"length": length, "pass": operation, "memory": memory, "needs": [*wanted]}
    # The table of the published records, which `harness.cli.pages` writes.
    path = FOLDER / f"{chosen.name}.json"
    table = {} if store or not path.exists() else json.loads(path.read_text("utf-8"))
    # The file may be older than the questions of the suite.
    if {*table.get("forms", ())} != {*names}:
        content = stores.results_of(chosen.name, *stores.stores_of(store))
        of = results(content.runs, chosen, content.rules)
        table = advice.table(of.answers(), of.seeds, content.costs, chosen, described())
    # A suite of a user is named by its file.
    table["suite"] = shlex.quote(suite if suite.endswith(".toml") else chosen.key)
    key, conflict = advice.rules.setting_of(table, query)
    if conflict:
        raise UserError(conflict)
    if measured := table["lengths"].get(key):
        query |= {"length": min(max(length, measured[0]), measured[-1]), "asked": length}
    return table, query, advice.advise(table, query)
