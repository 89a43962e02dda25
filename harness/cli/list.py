"""`harness list`: the variants, the tasks and the budgets.

Without plug-ins it is the text of `list.txt`, since the import of the variants imports torch, which
takes seconds. `python -m harness.cli.list` writes that file.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path

import typer

from harness.cli.process import script
from zoo.registry import UserError, Value, entry_points, options_of

BUILT_IN = Path(__file__).with_name("list.txt")


def list_() -> None:
    """List the variants with their traits and options, the tasks, and the budgets."""
    groups = ("zoo.variants", "tasks.tasks")
    plug_ins = any(map(entry_points, groups))
    typer.echo(listing() if plug_ins else BUILT_IN.read_text("utf-8"), nl=False)


def listing() -> str:
    """The list, made from everything that is registered."""
    from harness import budgets

    parts = [
        _variants(),
        "A+B has A in every layer but the last, and B in the last.",
        _tasks(),
        "A CSV, TSV or Parquet file of texts and labels is a task, too.",
        f"budgets: {', '.join(budgets.names())}, or the path of a TOML file\n",
    ]
    return "\n\n".join(parts)


def main() -> None:
    """Write the list of the variants, tasks and budgets of this package."""
    from harness.records.files import write_atomic

    typer.echo(write_atomic(BUILT_IN, listing().encode()))


def _variants() -> str:
    from zoo.contract import Traits
    from zoo.variants import variants

    rows = []
    for name, variant in variants.items():
        traits = asdict(variant.traits) | {"losses": ", ".join(variant.traits.losses)}
        cells = ("yes" if trait is True else trait or "" for trait in traits.values())
        rows.append([name, *cells, _joined(_defaults(variant))])
    return _table(["attention", *(field.name for field in fields(Traits)), "options"], rows)


def _tasks() -> str:
    from tasks import create
    from tasks.registry import tasks

    rows = []
    for name, factory in tasks.items():
        title, defaults = f"{name}@{factory.version}", _defaults(factory)
        options = _joined({option: defaults[option] for option in factory.option_names()})
        if None in defaults.values():
            rows.append([title, "", "", "", options])  # its size depends on that option
            continue
        try:
            task = create(name)
        except UserError as error:
            warnings.warn(str(error), stacklevel=2)
            continue
        size = str(task.classes), str(task.max_len)
        rows.append([title, *size, "yes" if task.causal else "", options])
    return _table(["task", "classes", "length", "causal", "options"], rows)


def _defaults(factory: Callable[..., object]) -> dict[str, Value | None]:
    """The default of every option; None where it has none."""
    options = options_of(factory).items()
    return {name: None if p.default is p.empty else p.default for name, p in options}


def _joined(defaults: Mapping[str, Value | None]) -> str:
    return ", ".join(n if default is None else f"{n}={default}" for n, default in defaults.items())


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    from tabulate import tabulate

    return tabulate(rows, headers=head, disable_numparse=True)


if __name__ == "__main__":
    script("list", main)
