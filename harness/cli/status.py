"""`harness status`: what runs, and what has ended, in a store."""

from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import arguments
from harness.cli.process import Answer
from zoo.registry import UserError, printable

if TYPE_CHECKING:
    from harness.records.locks import State


def status(
    store: arguments.StoreOption = Path("runs"), as_json: arguments.JsonOption = False
) -> Answer:
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
    runs: list[tuple[str, str, State | None, str]]
    runs = [("running", name, state, "") for name, state in found.running.items()]
    runs += [
        ("interrupted", name, state, "" if state else "with a checkpoint or a record")
        for name, state in found.interrupted.items()
    ]
    runs += [("failed", name, None, one.reason) for name, one in found.failed.items()]
    runs += [("waiting", name, None, "") for name in found.waiting]
    if as_json:
        rows = [dict(zip(("status", "name", "state", "reason"), run, strict=True)) for run in runs]
        return Answer({"done": done, "seconds_left": found.seconds_left, "rows": rows})
    text = summary(done, total, running, failed, left=found.seconds_left)
    lines = [
        printable(f"{kind:11}  {name}  {_where(state) if state else reason}".rstrip())
        for kind, name, state, reason in runs
    ]
    return Answer("\n".join([f"{text}; {interrupted} interrupted, {waiting} waiting", *lines]))


def _where(state: "State") -> str:
    """How far a run is, and whose it is."""
    threads = "1 thread" if state.threads == 1 else f"{state.threads} threads"
    return (
        f"{state.phase}, step {state.step}/{state.steps}; process {state.pid} of {state.host}, "
        f"{threads}, since {state.since}"
    )
