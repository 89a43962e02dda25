"""`harness status`: what runs, and what has ended, in a store."""

from typing import Any

from harness.arguments import Stored
from harness.cli.process import Answer
from zoo.registry import printable


def status(options: Stored) -> Answer:
    """Show which runs of a store are done, running, interrupted, failed or outdated.

    Runs of all machines that share the store count as running.
    """
    from harness.cli.progress import summary
    from harness.records.overview import overview
    from harness.records.store import Store, require_folder
    from harness.stores import with_warnings

    store = options.store
    require_folder(store)
    found = overview(Store(store))
    with_warnings(([], found.broken))
    saved = "with a checkpoint or a record"
    groups: dict[str, dict[str, tuple[Any, str]]] = {
        "running": {name: (state, "") for name, state in found.running.items()},
        "interrupted": {
            name: (state, "" if state else saved) for name, state in found.interrupted.items()
        },
        "failed": {name: (None, reason) for name, reason in found.failed.items()},
        "outdated": dict.fromkeys(found.outdated, (None, "")),
    }
    rows = [
        {"status": kind, "name": name, "reason": reason,
         "state": state and state.model_dump(include={"host", "pid", "since"})}
        for kind, runs in groups.items()
        for name, (state, reason) in runs.items()
    ]  # fmt: skip
    if options.as_json:
        return Answer({"done": len(found.done), "rows": rows})
    running, interrupted, failed, outdated = map(len, groups.values())
    done, total = len(found.done), len(found.done) + len(rows)
    text = summary(done, total, running, failed)
    old = f", {outdated} outdated: of other code or data than now" * bool(outdated)
    lines = [f"{text}; {interrupted} interrupted{old}"]
    for row in rows:
        what = row["reason"]
        if state := row["state"]:
            what = f"since {state['since']}; process {state['pid']} of {state['host']}"
        lines.append(printable(f"{row['status']:11}  {row['name']}  {what}".rstrip()))
    return Answer("\n".join(lines))
