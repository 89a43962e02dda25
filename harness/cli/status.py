"""`harness status`: what runs, and what has ended, in a store."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.cli import arguments
from zoo.registry import UserError, printable

if TYPE_CHECKING:
    from harness.records.locks import State


def status(store: arguments.StoreOption = Path("runs")) -> None:
    """Show which cells of a store are done, running, interrupted, failed or waiting.

    Running cells are those of all machines that share the store.
    """
    from harness.cli.grid_view import summary
    from harness.cli.report import with_warnings
    from harness.records.overview import overview
    from harness.records.store import Store

    if not store.is_dir():
        raise UserError(f"store {str(store)!r} is not a folder; make records with: harness run")
    found = overview(Store(store))
    with_warnings(([], found.broken))
    parts = found.done, found.failed, found.running, found.interrupted, found.waiting
    done, failed, running, interrupted, waiting = map(len, parts)
    total = done + failed + running + interrupted + waiting
    text = summary(done, total, running, failed, left=found.seconds_left)
    typer.echo(f"{text}; {interrupted} interrupted, {waiting} waiting")
    lines = [("running", name, _where(state)) for name, state in found.running.items()]
    lines += [
        ("interrupted", name, _where(state) if state else "with a checkpoint or a record")
        for name, state in found.interrupted.items()
    ]
    lines += [("failed", name, one.reason) for name, one in found.failed.items()]
    lines += [("waiting", name, "") for name in found.waiting]
    for kind, name, note in lines:
        typer.echo(printable(f"{kind:11}  {name}  {note}".rstrip()))


def _where(state: "State") -> str:
    """How far a run is, and whose it is."""
    threads = "1 thread" if state.threads == 1 else f"{state.threads} threads"
    return (
        f"{state.phase}, step {state.step}/{state.steps}; process {state.pid} of {state.host}, "
        f"{threads}, since {state.since}"
    )
