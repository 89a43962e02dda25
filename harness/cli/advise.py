"""`harness advise`: which rows of a suite suit a purpose, from records alone."""

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import arguments
from harness.cli.process import Answer
from zoo.registry import UserError, unknown

if TYPE_CHECKING:
    from harness.records.suites import Suite
    from reports.prediction import Model

STDERR = 2
"""The file descriptor."""


def advise(
    length: Annotated[str, typer.Option(help="Tokens of a sample: 4096 or 16k.")],
    pass_: Annotated[str, typer.Option("--pass", help="train, forward, prefill or decode.")],
    needs: Annotated[str, typer.Option(help="Questions, or what their names begin with: recall.")],
    memory: Annotated[
        str, typer.Option(help="The most memory of a sample, as 2GiB; any by default.")
    ] = "",
    causal: Annotated[bool, typer.Option("--causal", help="Causal layers.")] = False,
    depth: Annotated[int, typer.Option(min=0, help="Layers of a model; 0 for one layer.")] = 0,
    width: Annotated[int, typer.Option(min=0, help="Width of that model.")] = 0,
    measure: Annotated[bool, typer.Option("--measure", help="Measure what is missing.")] = False,
    suite: Annotated[str, typer.Option(help="NAME, NAME@VERSION or a TOML file.")] = "laptop",
    store: Annotated[
        Path | None,
        typer.Option(parser=arguments.path, help="Records in addition to the published ones."),
    ] = None,
    as_json: arguments.JsonOption = False,
) -> Answer:
    """Say which variants to use: those that no other beats in accuracy, time and memory at once.

    Nothing is extrapolated: what is not measured is named, with the command that measures it. With
    --depth and --width, time and memory are those of a model, predicted from measured models.
    """
    from harness.records.suites import find
    from reports.prediction import Model

    if bool(depth) != bool(width):
        raise UserError(f"--depth {depth} --width {width}: give both, or none of them")
    if measure and store is None:
        raise UserError("--measure writes records, and the published ones stay; give --store")
    chosen = find(suite)
    query = _query(length, pass_, needs, memory, causal, chosen)
    model = Model(depth, width) if depth else None
    # A suite of a user is named by its file.
    name = suite if suite.endswith(".toml") else chosen.key
    table, result = _advice(chosen, name, query, store, model)
    done: set[str] = set()
    # What is run may show what is to be measured.
    while measure and (commands := [text for text in result["commands"] if text not in done]):
        for command in commands:
            _execute(command, store)
        done.update(commands)
        table, result = _advice(chosen, name, query, store, model)
    if as_json:
        return Answer({"query": query, "setting": table["setting"], **result})
    from reports.advice import advice_text

    return Answer(advice_text(table, query, result, model))


def _query(
    length: str, operation: str, needs: str, memory: str, causal: bool, suite: "Suite"
) -> dict[str, Any]:
    from reports.advice import RULES, bytes_in

    names = [question.name for question in suite.questions]
    wanted: dict[str, None] = {}
    for need in arguments.names_in([needs]):
        found = [name for name in names if name == need or name.startswith(f"{need}-")]
        if not found:
            raise UserError(unknown(f"question of {suite.key}", need, names))
        wanted |= dict.fromkeys(found)
    if operation not in RULES["passes"]:
        raise UserError(unknown("pass", operation, RULES["passes"]))
    try:
        limit = bytes_in(memory) if memory else None
    except ValueError:
        raise UserError(f"--memory {memory!r} is not an amount; give for example 2GiB") from None
    lengths = arguments.integers_in("--length", length, range(1, 2**24 + 1), "16k")
    if len(lengths) > 1:
        raise UserError(f"--length {length!r} is more than one length; give one")
    return {"length": lengths[0], "pass": operation, "causal": causal, "memory": limit,
            "needs": [*wanted]}  # fmt: skip


def _advice(
    suite: "Suite",
    name: str,
    query: Mapping[str, Any],
    store: Path | None,
    model: "Model | None",
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The table of the records, and what follows from it."""
    from harness.cli.suite_results import read_results, stores_of, table_of, table_path
    from reports.advice import advise

    path = table_path(suite)
    if store or model or not path.exists():
        table = table_of(read_results(suite, stores_of(store)), model)
    else:
        table = json.loads(path.read_text("utf-8"))
    table = {**table, "suite": shlex.quote(name)}
    return table, advise(table, dict(query))


def _execute(command: str, store: Path | None) -> None:
    """Run a command of this program; what it prints goes to stderr."""
    argv = [sys.executable, "-m", "harness.cli", *shlex.split(command)[1:], "--store", str(store)]
    subprocess.run(argv, stdout=STDERR, check=False)
