"""`harness advise`: which rows of a suite suit a purpose, from records alone."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import stores
from harness.catalogue import described
from harness.cli import arguments
from harness.cli.cost import LONGEST
from harness.cli.process import Answer
from zoo.registry import UserError, unknown

if TYPE_CHECKING:
    from harness.records.suites import Suite


@dataclass(frozen=True, kw_only=True)
class AdviseOptions:
    """The options of `harness advise`.

    Attributes:
        length: Tokens of a sample: 4096 or 16k.
        pass_: train, forward, prefill or decode.
        needs: Questions of one form, or what their names begin with: recall.
        memory: The most peak memory of a sample, as 2GiB, in decoding with the state; by default
            any.
        suite: NAME, NAME@VERSION or a TOML file.
        store: Records in addition to the published ones.
        as_json: Print one JSON document; progress goes to stderr.
    """

    length: str
    pass_: str
    needs: str
    memory: str = ""
    suite: str = "laptop"
    store: Path | None = None
    as_json: bool = False


def advise(options: AdviseOptions) -> Answer:
    """Say which variants to use: those that no other beats in accuracy, time and memory at once.

    Costs are of the form of the questions, causal or bidirectional. Nothing is extrapolated: what
    is not measured is named, with the command that measures it.
    """
    from harness.records.suites import find

    chosen = find(options.suite)
    query = _query(options, chosen)
    # A suite of a user is named by its file.
    name = options.suite if options.suite.endswith(".toml") else chosen.key
    table, result = _advice(chosen, name, query, options.store)
    if options.as_json:
        return Answer({"query": query, "setting": table["setting"], **result})
    from reports.advice import advice_text

    return Answer(advice_text(table, query, result))


def _query(options: AdviseOptions, suite: "Suite") -> dict[str, Any]:
    from reports.advice import PASSES, bytes_in

    names = [question.name for question in suite.questions]
    wanted: dict[str, None] = {}
    for need in arguments.names_in([options.needs]):
        found = [name for name in names if name == need or name.startswith(f"{need}-")]
        if not found:
            raise UserError(unknown(f"question of {suite.key}", need, names))
        wanted |= dict.fromkeys(found)
    if options.pass_ not in PASSES:
        raise UserError(unknown("pass", options.pass_, PASSES))
    try:
        limit = bytes_in(options.memory) if options.memory else None
    except ValueError:
        raise UserError(
            f"--memory {options.memory!r} is not an amount; give for example 2GiB"
        ) from None
    lengths = arguments.integers_in("--length", options.length, range(1, LONGEST + 1), "16k")
    if len(lengths) > 1:
        raise UserError(f"--length {options.length!r} is more than one length; give one")
    return {
        "length": lengths[0], "pass": options.pass_, "memory": limit, "needs": [*wanted],
    }  # fmt: skip


def _advice(
    suite: "Suite", name: str, query: Mapping[str, Any], store: Path | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The table of the records, and what follows from it."""
    from harness.records.suites import FOLDER
    from reports import advice
    from reports.suite_results import results

    # The table of the published records, which `harness.pages` writes.
    path = FOLDER / f"{suite.name}.json"
    if store or not path.exists():
        content = stores.results_of(suite.name, *stores.stores_of(store))
        found = results(content.runs, suite, content.rules)
        table = advice.table(found.answers(), found.seeds, content.costs, suite, described())
    else:
        table = json.loads(path.read_text("utf-8"))
    table = {**table, "suite": shlex.quote(name)}
    return table, advice.advise(table, dict(query))
