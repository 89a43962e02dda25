"""The place of a variant among the published rows of a suite, as text."""

import shlex
from collections.abc import Mapping
from typing import Any

from harness.records.suites import find
from reports.markdown import rendered
from reports.text import NOTHING, ratio_text, text_table

ALWAYS = ("softmax", "ssd")  # Rows beside any other: exact attention, and a state
HEAD = ("place", "attention", "score", "95 % interval")
Document = Mapping[str, Any]


def text(document: Document, machine: str) -> str:
    row = document["row"]
    outdated = {name for found in document["questions"] for name in found.get("outdated", ())}
    results = [
        (found, f"not run: {found.get('reason')}" if found["score"] is None
         else text_table(HEAD[not found["ranks"] :], _lines(row, found)))
        for found in document["questions"]
    ]  # fmt: skip
    return rendered(
        "first.txt.j2", of=document, machine=machine, outdated=len(outdated),
        results=results, costs=_costs(document), name=shlex.quote(document.get("attention", row)),
    ).rstrip("\n")  # fmt: skip


def _costs(document: Document) -> str:
    plan, layers = find(document["suite"]).cost, document["layers"]
    lengths = sorted({line["tokens"] for lines in layers.values() for line in lines})
    head = [
        f"training a {'layer' if plan.level == 'layer' else 'model'}, one sequence a step, on "
        f"{document['device']}; softmax = 1",
        *map("{:,}".format, lengths),
    ]
    rows = []
    for form, lines in layers.items():
        by_length = {line["tokens"]: line for line in lines}
        for what in ("time", "memory"):
            found = [by_length.get(length, {}) for length in lengths]
            rows.append([f"{what}, {form}, width {plan.dim}, {plan.precision}", *(
                ratio_text(line[name]) if line.get(name := f"{what}_ratio") is not None
                else str(line.get("reason", NOTHING)) for line in found
            )])  # fmt: skip
    return text_table(head, rows) if rows else ""


def _lines(row: str, found: Document) -> list[list[str]]:
    others, at, before = found["others"], found["place"] - 1, found["published"]
    lines = {
        other["place"]: [str(other["place"]), other["row"], f"{other['mean']:.1f}",
                         other["interval"]]
        for n, other in enumerate(others)
        if n in (0, at - 1, at) or other["row"] in ALWAYS
    }  # fmt: skip
    note = "" if before is None else f"; recorded mean: {before:.1f}"
    lines[found["place"]] = [
        f"{found['place']} of {found['of']}", f"{row}, this run", f"{found['score']:.1f}",
        f"{found['interval']}, 1 seed{note}",
    ]  # fmt: skip
    ordered, last = list[list[str]](), 0
    for place, line in sorted(lines.items()):
        ordered += [["", f"... {place - last - 1} more", "", ""]] * (place - last > 1)
        ordered, last = [*ordered, line], place
    if rule := found["baseline"]:
        ordered.append(["", f"baseline: {rule[0]}", f"{rule[1]:.1f}", ""])
    # Places are left out where no row is better than the baselines.
    return [line[not found["ranks"] :] for line in ordered]
