"""`harness status`: what runs, and what has ended, in a store."""

from collections import Counter
from pathlib import Path

from harness.cli.process import Answer
from zoo.registry import printable

SHOWN = ("host", "pid", "since", "phase", "step", "steps")  # Fields of the state of a run


def status(store: Path = Path("runs")) -> Answer:
    """Show the state of the runs of a store.

    They are done, running, interrupted, failed or outdated.

    Runs of all machines that share the store count as running.
    """
    from harness.records.store import Store, overview, require_folder, summary
    from harness.stores import with_warnings

    entries, _ = with_warnings(overview(Store(require_folder(store))))
    counts = Counter(entry.status for entry in entries)
    rows = [
        {"status": status, "name": name, "reason": reason,
         "state": state and {name: getattr(state, name) for name in SHOWN}}
        for status, name, reason, state in entries
        if status != "done"
    ]  # fmt: skip
    text = summary(counts["done"], len(entries), counts["running"], counts["failed"])
    old = counts["outdated"]
    more = f", {old} outdated: code or data have changed since" * bool(old)
    lines = [f"{text}; {counts['interrupted']} interrupted{more}"]
    for row in rows:
        what = row["reason"]
        if state := row["state"]:
            what = f"since {state['since']}; process {state['pid']} of {state['host']}"
            if row["status"] == "running":
                what += f"; {state['phase']}, step {state['step']} of {state['steps']}"
        lines.append(printable(f"{row['status']:11}  {row['name']}  {what}".rstrip()))
    return Answer("\n".join(lines), {"done": counts["done"], "rows": rows})
