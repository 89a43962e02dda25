"""`harness list`: the variants, the tasks and the budgets."""

import json
from collections.abc import Mapping, Sequence
from importlib import metadata
from textwrap import fill
from typing import Annotated, Any

import typer

from harness.cli.arguments import JsonOption
from harness.cli.catalogue import BUILT_IN, Entry, described, registered
from harness.cli.process import Answer, script
from zoo.registry import UserError, unknown

WIDTH = 100
"""Characters of a line."""

CLAIMS = {
    "bidirectional": "bidirectional",
    "causal": "causal",
    "cross": "cross-attention",
    "linear": "linear cost",
    "stochastic": "stochastic",
    "recurrent": "recurrent",
}
"""The claims that a variant makes or not, and how they are listed."""


def list_(
    name: Annotated[
        str, typer.Argument(help="A variant or a task: its options and what they mean.")
    ] = "",
    as_json: JsonOption = False,
) -> Answer:
    """List the variants, the tasks and the budgets, or describe one of them."""
    document = described()
    for entry in (*document["variants"], *document["tasks"]):
        entry["installed"] = {package: _is_installed(package) for package in entry["requires"]}
    if not name:
        return Answer(document if as_json else listing(document))
    entries = {entry["name"]: entry for kind in ("tasks", "variants") for entry in document[kind]}
    if name not in entries:
        raise UserError(unknown("variant or task", name, entries))
    return Answer(entries[name] if as_json else details(entries[name]))


def listing(document: Mapping[str, Sequence[Any]]) -> str:
    """The list as text."""
    variants, tasks = document["variants"], document["tasks"]
    mechanisms = [[one["name"], "\n".join([one["mechanism"], *_needs(one)])] for one in variants]
    claims = [
        [text, ", ".join(one["name"] for one in variants if one[claim])]
        for claim, text in CLAIMS.items()
    ]
    losses = [f"{one['name']} ({', '.join(one['losses'])})" for one in variants if one["losses"]]
    parts = [
        _table(["attention", "mechanism"], mechanisms),
        _table(["claim", ""], [*claims, ["auxiliary loss", ", ".join(losses)]]),
        "A+B has A in every layer but the last, and B in the last.",
        _table(["task", "classes", "length", "causal", "options"], map(_task_row, tasks)),
        "A CSV, TSV or Parquet file of texts and labels is a task, too.",
        f"budgets: {', '.join(document['budgets'])}, or the path of a TOML file",
        "harness list NAME: the options of a variant or a task, and what they mean",
    ]
    return "\n\n".join(parts)


def details(entry: Entry) -> str:
    """A variant or a task as text: what it is, and its options."""
    if "version" in entry:
        names = ("classes", "length", "causal")
        lines = [f"{_title(entry)}: {entry['title']}"]
        lines += [f"{name}: {entry[name]}" for name in names if entry[name] is not None]
    else:
        claims = [text for claim, text in CLAIMS.items() if entry[claim]]
        lines = [f"{entry['name']}: {entry['mechanism']}"]
        lines += [entry["paper"]] if entry["paper"] else []
        lines += [f"claims: {', '.join(claims) or 'none'}"]
        lines += [f"auxiliary loss: {', '.join(entry['losses'])}"] if entry["losses"] else []
    rows = [
        [option["name"], option["type"], _value(option["default"]), option["meaning"]]
        for option in entry["options"]
    ]
    table = _table(["option", "type", "default", "meaning"], rows) if rows else "no options"
    return "\n".join([*(fill(line, WIDTH) for line in (*lines, *_needs(entry))), "", table])


def main() -> None:
    """Write the variants, tasks and budgets of this package."""
    from harness.records.files import write_atomic

    text = json.dumps(registered(plug_ins=False), indent=1, ensure_ascii=False)
    typer.echo(write_atomic(BUILT_IN, f"{text}\n".encode()))


def _is_installed(package: str) -> bool | None:
    """Whether a package is installed; None for CUDA, which takes seconds to find out."""
    if package == "CUDA":
        return None
    try:
        return bool(metadata.version(package))
    except metadata.PackageNotFoundError:
        return False


def _needs(entry: Entry) -> list[str]:
    """A line of what an entry requires, if anything."""
    states = {True: " (installed)", False: " (not installed)", None: ""}
    texts = [f"{package}{states[installed]}" for package, installed in entry["installed"].items()]
    return [f"needs {', '.join(texts)}"] if texts else []


def _title(task: Entry) -> str:
    return f"{task['name']}@{task['version']}"


def _task_row(task: Entry) -> list[str]:
    size = [_value(task[field]) for field in ("classes", "length")]
    options = ", ".join(
        option["name"] + ("" if option["default"] is None else f"={option['default']}")
        for option in task["options"]
    )
    return [
        _title(task),
        *size,
        "yes" if task["causal"] else "",
        "\n".join([options, *_needs(task)]),
    ]


def _value(value: object) -> str:
    return "" if value is None else str(value)


def _table(head: Sequence[str], rows: Any) -> str:
    from reports.text import text_table

    return text_table(head, rows, WIDTH)


if __name__ == "__main__":
    script("list", main)
