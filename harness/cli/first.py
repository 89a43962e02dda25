"""`harness run --attention A`, without more: the place of a variant among the published rows."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli import cells
from harness.cli.process import Answer

if TYPE_CHECKING:
    import pandas as pd

    from harness.engines.choice import Resources
    from harness.records.suites import Question, Suite, SuiteRow

SUITE, SEED = "laptop", 1

LENGTHS = (256, 1024, 4096)
"""Tokens at which a layer is measured."""

SECONDS, TIMEOUT = 0.5, 60.0
"""Of sampling for a length, and of all of it."""

WIDTH = 100
"""Characters of a line."""

Document = dict[str, Any]


def first(
    attentions: Sequence[str],
    device: str,
    store: Path,
    resources: "Resources",
    as_json: bool,
    name: str = SUITE,
) -> Answer:
    """Train each variant on the first questions of the suite, and measure a layer of it.

    Raises:
        UserError: a variant is unknown, or the store cannot be written.
    """
    from harness.environment import describe, pick_device
    from harness.records.suites import find, published
    from harness.suite import rows_of

    suite = find(name)
    kind: Any = pick_device(device).type
    if resources.engine == "local" and not resources.workers and kind == "cpu":
        workers = min(len(suite.first), os.cpu_count() or 1)
        resources = replace(resources, workers=workers, threads=resources.threads or 1)
    rows, answers = rows_of(suite, attentions, {}), published(suite)
    questions = [suite.question(one) for one in suite.first]
    runs = _runs(name, questions, rows, answers, kind, store, resources)
    documents: list[Document] = [
        {
            "row": row.label,
            "questions": [place(row.label, question, runs, answers) for question in questions],
            "layer": _layer(suite, row, kind),
        }
        for row in rows
    ]
    failed = any(one["failed"] for own in documents for one in own["questions"])
    machine = f"{suite.key}, seed {SEED}; {describe(kind).device}"
    if as_json:
        return Answer({"machine": machine, "rows": documents}, int(failed))
    return Answer("\n\n".join(text(own, machine) for own in documents), int(failed))


def _runs(
    name: str,
    questions: "Sequence[Question]",
    rows: "Sequence[SuiteRow]",
    answers: "pd.DataFrame",
    device: Any,
    store: Path,
    resources: "Resources",
) -> "pd.DataFrame":
    """A run of each row on each question that it has a form for, at its published rate."""
    from harness.plan import resolve
    from harness.records.frame import of_records
    from harness.suite import requests

    rates = answers.set_index(["row", "question"])["rate"].to_dict()
    plans = []
    for question in questions:
        for row in rows:
            rate = rates.get((row.label, question.name))
            train = {"train": {"lr": rate}} if rate else {}
            plans += [
                resolve(replace(request, settings={**request.settings, **train}))
                for request in requests(name, question, [row], device, SEED)
            ]
    outcomes = cells.run(plans, store, cost=False, resources=resources) if plans else []
    return of_records(record for record, _ in outcomes)


def place(
    row: str, question: "Question", runs: "pd.DataFrame", answers: "pd.DataFrame"
) -> Document:
    """The accuracy of a row on a question in percent, and its place among the other rows.

    Args:
        row: its label.
        question: of the suite.
        runs: of the command.
        answers: the published ones; see `harness.records.suites.published`.
    """
    found: Document = {"title": question.title, "asks": question.asks, "failed": False}
    own = [
        one
        for one in runs.to_dict("records")
        if (one["row"], one["question"]) == (row, question.name)
    ]
    if not own:
        return found | {"score": None, "reason": f"{row} lacks the form that this needs"}
    if own[0]["status"] != "ok":
        return found | {"score": None, "reason": own[0]["reason"], "failed": True}
    score = own[0]["score"]
    lines = [one for one in answers.to_dict("records") if one["question"] == question.name]
    others = sorted((one for one in lines if one["row"] != row), key=lambda one: -one["mean"])
    above = sum(one["mean"] > score for one in others)
    rules = {one["baseline"]: one["baseline_value"] for one in others if one["baseline"]}
    return found | {
        "score": score,
        "place": above + 1,
        "of": len(others) + 1,
        "others": [
            {"place": n + (n > above), "row": one["row"], "mean": one["mean"]}
            for n, one in enumerate(others, 1)
        ],
        "published": next((one["mean"] for one in lines if one["row"] == row), None),
        "baseline": max(rules.items(), key=lambda rule: rule[1], default=None),
    }


def _layer(suite: "Suite", row: "SuiteRow", device: Any) -> list[Document]:
    """What training a layer of a row costs, compared with the fastest softmax; none for A+B."""
    import torch

    from harness.cost.limits import measure_limits
    from harness.cost.process import measure_in_process
    from harness.suite import layer_costs

    plan = suite.cost.model_copy(update={"lengths": LENGTHS, "passes": ("train",)})
    specs = layer_costs(plan.model_copy(update={"batch": {"train": "1"}}), row, device)
    found: dict[int, Document] = {}
    limits = measure_limits(torch.device(device), plan.precision, 0.1) if specs else None
    for spec in specs:
        if limits is None or spec.attention != row.attention or spec.length in found:
            continue
        outcome = measure_in_process(spec, limits, budget=SECONDS, timeout=TIMEOUT)
        line: Document = {"tokens": spec.length, "reason": outcome.reason or outcome.status}
        if measured := outcome.measured:
            line |= {
                "milliseconds": 1000 * measured.seconds.median,
                "time_ratio": measured.ratio.median if measured.ratio else None,
                "memory_ratio": measured.memory_ratio,
                "reason": measured.no_ratio,
            }
        found[spec.length] = line
    return [*found.values()]


def text(document: Document, machine: str) -> str:
    """What the command prints of a row: at most 25 lines."""
    from reports.text import text_table

    row = document["row"]
    parts = [f"{row} among the published rows of {machine}"]
    for one in document["questions"]:
        title = f"{one['title']}: {one['asks']}"
        if one["score"] is None:
            parts.append(f"{title}\nnot run: {one['reason']}")
            continue
        parts.append(
            f"{title}\n{text_table(['place', 'row', 'accuracy, %'], _lines(row, one), WIDTH)}"
        )
    if layer := document["layer"]:
        head = ["training a layer, tokens", *(f"{one['tokens']:,}" for one in layer)]
        parts.append(text_table(head, [
            ["time over that of softmax", *(_ratio(one, "time_ratio") for one in layer)],
            ["memory over that of softmax", *(_ratio(one, "memory_ratio") for one in layer)],
        ], WIDTH))  # fmt: skip
    parts.append(
        f"all questions: harness run --suite {SUITE} --attention {row.partition('[')[0]}\n"
        "another task:  harness run --task listops --attention "
        f"{row.partition('[')[0]}; every row: harness list"
    )
    return "\n\n".join(parts)


def _lines(row: str, one: Document) -> list[list[str]]:
    """The best row, those next to the row, and the strongest baseline."""
    others, at = one["others"], one["place"] - 1
    shown = [*dict.fromkeys((0, at - 1, at))]
    lines = {
        other["place"]: [str(other["place"]), other["row"], f"{other['mean']:.1f}"]
        for other in (others[n] for n in shown if 0 <= n < len(others))
    }
    before = one["published"]
    note = "" if before is None else f" (published: {before:.1f})"
    lines[one["place"]] = [
        f"{one['place']} of {one['of']}", f"{row}, this run", f"{one['score']:.1f}{note}"
    ]  # fmt: skip
    found = [line for _, line in sorted(lines.items())]
    if rule := one["baseline"]:
        found.append(["", f"rule without attention: {rule[0]}", f"{rule[1]:.1f}"])
    return found


def _ratio(line: Mapping[str, Any], name: str) -> str:
    value = line.get(name)
    return f"{value:.2f}" if value is not None else str(line["reason"])
