"""`harness measure`: measure the cost of finished runs again."""

import warnings
from pathlib import Path

import typer

from harness.cli.arguments import JsonOption, StoreOption
from harness.cli.process import Answer
from harness.cli.report import read
from zoo.registry import UserError, printable


def measure(store: StoreOption = Path("runs"), as_json: JsonOption = False) -> Answer:
    """Measure the cost of every finished run of a store again.

    Useful if other processes used the machine during the runs.

    A record that cannot be measured is left unchanged, and the exit code is 1.
    """
    from harness.environment import keep_freed_memory
    from harness.records.store import Store
    from harness.remeasure import remeasure
    from harness.runner import reason_of
    from reports import tables

    keep_freed_memory()
    folder = Store(store)
    records = [record for record in read(store)[0] if record.status == "ok"]
    if not records:
        raise UserError(f"store {str(store)!r} has no finished run; make one with: harness run")
    folder.remove_leftovers()
    measured = []
    for record in records:
        path = folder.path(record.spec)
        try:
            measured.append(remeasure(record, folder))
            typer.echo(printable(str(path)))
        except Exception as error:
            warnings.warn(f"{path} is left unchanged: {reason_of(error)}", stacklevel=2)
    content = {"rows": tables.rows_of(measured)} if as_json else f"\n{tables.summary(measured)}"
    return Answer(content, 0 if len(measured) == len(records) else 1)
