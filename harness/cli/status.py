"""`harness status`: what runs, and what has ended, in a store."""

from typing import Any

from harness.cli.arguments import Stored
from harness.cli.process import Answer
from zoo.registry import printable


def status(options: Stored) -> Answer:
    """Show which runs of a store are done, running, interrupted, failed, waiting or outdated.

    Runs of all machines that share the store count as running.
    """
    from harness.cli.progress import summary
    from harness.cli.stores import with_warnings
    from harness.records.overview import overview
    from harness.records.store import Store, require_folder
    from reports.text import threads_of

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
        "failed": {name: (None, run.reason) for name, run in found.failed.items()},
        "waiting": dict.fromkeys(found.waiting, (None, "")),
        "outdated": dict.fromkeys(found.outdated, (None, "")),
    }
    rows = [
        {"status": kind, "name": name, "state": state, "reason": reason}
        for kind, runs in groups.items()
        for name, (state, reason) in runs.items()
    ]
    if options.as_json:
        seconds = found.seconds_left
        return Answer({"done": len(found.done), "seconds_left": seconds, "rows": rows})
    running, interrupted, failed, waiting, outdated = map(len, groups.values())
    done, total = len(found.done), len(found.done) + len(rows)
    text = summary(done, total, running, failed, left=found.seconds_left)
    old = f", {outdated} outdated: of other code or data than now" * bool(outdated)
    lines = [f"{text}; {interrupted} interrupted, {waiting} waiting{old}"]
    for row in rows:
        what = row["reason"]
        if state := row["state"]:
            what = (
                f"{state.phase}, step {state.step}/{state.steps}; process {state.pid} of "
                f"{state.host}, {threads_of(state.threads)}, since {state.since}"
            )
        lines.append(printable(f"{row['status']:11}  {row['name']}  {what}".rstrip()))
    return Answer("\n".join(lines))
