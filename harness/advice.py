"""Advice from the records of a suite, published and a user's; see `reports.advice`."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from harness import stores
from harness.catalogue import described
from harness.records.fields import require_known
from harness.records.suites import FOLDER, find
from reports import advice
from reports.suite_results import results
from zoo.registry import UserError, unknown


def ask(
    needs: Sequence[str], operation: str, length: int, memory: float | int | None = None, *,
    suite: str = "laptop", store: Path | None = None,
) -> tuple[advice.Values, advice.Values, advice.Values]:  # fmt: skip
    """The table, the query and the result of `reports.advice.advise`; see `harness.advise`.

    Records are the published ones and those of `store`, whose costs replace the published ones.
    """
    chosen = find(suite)
    names = [question.name for question in chosen.questions]
    wanted: dict[str, None] = {}
    for need in needs:
        found = [name for name in names if name == need or name.startswith(f"{need}-")]
        if not found:
            raise UserError(unknown(f"question of {chosen.key}", need, names))
        wanted |= dict.fromkeys(found)
    require_known("pass", [operation], advice.PASSES)
    query = {"length": length, "pass": operation, "memory": memory, "needs": [*wanted]}
    # The table of the published records, which `harness.pages` writes.
    path = FOLDER / f"{chosen.name}.json"
    if store or not path.exists():
        content = stores.results_of(chosen.name, *stores.stores_of(store))
        of = results(content.runs, chosen, content.rules)
        values = advice.table(of.answers(), of.seeds, content.costs, chosen, described())
    else:
        values = json.loads(path.read_text("utf-8"))
    # A suite of a user is named by its file.
    values["suite"] = shlex.quote(suite if suite.endswith(".toml") else chosen.key)
    return values, query, advice.advise(values, query)
