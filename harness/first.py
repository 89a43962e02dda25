"""The place of a variant among the published rows of a suite, and the cost of a layer of it."""

import os
import shlex
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch

from harness.arguments import registered
from harness.costs import measurement, sweep
from harness.environment import describe
from harness.records import suites
from harness.records.cost import batching_of
from harness.records.fields import Device
from harness.records.frame import of_records
from harness.records.spec import RunSpec
from harness.records.suites import Suite, SuiteQuestion, SuiteRow
from harness.records.versions import built_in, is_current
from harness.runs import Execution, execute
from harness.suite import layer_costs, rows_of, specs_of
from harness.tuning import at_rate, finals
from reports import verdicts
from reports.layer_costs import FORMS
from reports.markdown import rendered
from reports.text import text_table

SUITE, SEED = "laptop", 1
"""The suite, and the seed of its runs."""

HEAD = ("place", "attention", "accuracy, %", "verdict")

LENGTHS = (256, 1024, 4096)
"""Tokens at which a layer is measured."""

SECONDS, TIMEOUT = 0.5, 60.0
"""Seconds of sampling for a length, and of its whole measurement at most."""

Document = dict[str, Any]


def first(names: Sequence[str], how: Execution, suite: str = SUITE) -> Document:
    """Train each variant on the first questions of the suite, and measure a layer; see `text`."""
    of, device = suites.find(suite), how.resources.device
    if how.resources.engine == "local" and not how.resources.workers and device == "cpu":
        workers = min(len(of.first), os.cpu_count() or 1)
        resources = replace(how.resources, workers=workers, threads=how.resources.threads or 1)
        how = replace(how, resources=resources)
    attentions = registered([*names])
    rows, typed = rows_of(of, attentions, {}), dict(zip(attentions, names, strict=True))
    questions, answers = [*map(of.question, of.first)], suites.published(of)
    specs = _specs(of, questions, rows, answers, device)
    outcomes = execute(specs, how) if specs else []
    runs = of_records(record for record, _ in outcomes)
    documents = [{
        "row": row.label, "attention": typed.get(row.label) or typed[row.attention],
        "questions": [place(row.label, question, runs, answers) for question in questions],
        "device": "a CPU" if device == "cpu" else "a GPU",
        "layers": layers_of(of, row, how) if how.cost else {},
    } for row in rows]  # fmt: skip
    return {"machine": f"{of.key}; {describe(device).device}", "rows": documents}


def _specs(
    suite: Suite, questions: Sequence[SuiteQuestion], rows: Sequence[SuiteRow],
    answers: pd.DataFrame, device: Device,
) -> list[RunSpec]:  # fmt: skip
    """A run of each row on each question that it has a form for, at its published rate.

    A row without a published rate has the middle one, of two the higher.
    """
    rates = answers.set_index(["row", "question"])["rate"].dropna().to_dict()
    specs = []
    for question in questions:
        for trials in specs_of(suite, question, rows, device):
            middle = trials[len(trials) // 2]
            if rate := rates.get((middle.row, question.name)):
                specs += finals(at_rate(middle, rate), [SEED])
            else:
                # Without trials of the row it is no result of the suite.
                specs.append(middle.model_copy(update={"seed": SEED, "role": ""}))
    return specs


def place(row: str, question: SuiteQuestion, runs: pd.DataFrame, answers: pd.DataFrame) -> Document:
    """The accuracy of a row on a question in percent, and its place among the published results."""
    found: Document = {"title": question.title, "asks": question.asks, "failed": False}
    names = (row, question.name)
    run = next((r for r in runs.to_dict("records") if (r["row"], r["question"]) == names), None)
    if run is None:
        return found | {"score": None, "reason": f"{row} lacks the form that this needs"}
    if run["status"] != "ok":
        return found | {"score": None, "reason": run["reason"], "failed": True}
    lines = answers[answers["question"] == question.name]
    others = lines[lines["row"] != row].sort_values("mean", ascending=False, kind="stable")
    score = run["score"]
    place = 1 + int((others["mean"] > score).sum())
    ranked = others.assign(place=[n for n in range(1, len(others) + 2) if n != place])
    before = next(iter(lines[lines["row"] == row].to_dict("records")), {})
    rules = others[others["baseline"] != ""].set_index("baseline")["baseline_value"].to_dict()
    code = dict(zip(lines["row"], lines["version"], strict=True))
    return found | {
        "declared": run["declared"], "score": score, "place": place, "of": len(others) + 1,
        "others": ranked[["place", "row", "mean", "verdict"]].to_dict("records"),
        "published": before.get("mean"), "verdict": before.get("verdict", ""),
        "curve": run.get("curve") or _curve(run, question),
        "outdated": [name for name, text in code.items() if not is_current(text, built_in())],
        "baseline": max(rules.items(), key=lambda rule: rule[1], default=None),
    }  # fmt: skip


def _curve(run: Mapping[Hashable, Any], question: SuiteQuestion) -> str:
    """The progress of one run: its steps to the ceiling, or the rise of its curve at the end."""
    if question.ceiling is None or "evaluations" not in run:
        return ""
    runs, ceilings = pd.DataFrame([{**run, "grid": ""}]), {question.name: question.ceiling}
    (found,) = verdicts.verdicts(runs, ceilings).to_dict("records")
    if found["verdict"] == verdicts.ABLE:
        return f"at the ceiling after {found['steps']:,.0f} steps"
    return verdicts.words(found).removeprefix(f"{verdicts.UNDECIDED}, ")


def layers_of(suite: Suite, row: SuiteRow, how: Execution) -> dict[str, list[Document]]:
    """The cost of training a layer of a row over the fastest softmax, by form; none for A+B."""
    batch: Any = {"train": "1"}
    device = how.resources.device
    changes = {"lengths": LENGTHS, "passes": ("train",), "batch": batch}
    specs = layer_costs(suite.cost.model_copy(update=changes), row, device)
    # Of several specifications of softmax the first is the row.
    of_row = {(spec.causal, spec.length): spec for spec in reversed(specs)}
    if not of_row:
        return {}
    rates = measurement.measure_limits(torch.device(device), suite.cost.precision, 0.1)
    found: dict[str, list[Document]] = {form: [] for form in FORMS}
    with how.shown.fitting(f"{row.label}, cost of a layer") as on_step:
        for done, ((causal, length), spec) in enumerate(sorted(of_row.items(), reverse=True)):
            form = FORMS[0 if causal else 1]
            on_step(f"{form}, {length:,} tokens", done, len(of_row))
            outcome = sweep.measure_in_process(spec, rates, seconds=SECONDS, timeout=TIMEOUT)
            line: Document = {"tokens": length, "reason": outcome.reason or outcome.status}
            if measured := outcome.measured:
                line |= {
                    "milliseconds": 1000 * measured.seconds.median, "reason": measured.no_ratio,
                    "time_ratio": measured.ratio.median if measured.ratio else None,
                    "memory_ratio": measured.memory_ratio,
                }  # fmt: skip
            found[form].insert(0, line)
    return {form: lines for form, lines in found.items() if lines}


def text(document: Document, machine: str) -> str:
    """The document of a row as text: at most 32 lines."""
    row, plan = document["row"], suites.find(SUITE).cost
    outdated = {name for found in document["questions"] for name in found.get("outdated", ())}
    results = [
        (found, f"not run: {found.get('reason')}" if found["score"] is None
         else text_table(HEAD, _lines(row, found)))
        for found in document["questions"]
    ]  # fmt: skip
    unit, count = batching_of(plan.batch["train"])
    return rendered(
        "first.txt.j2", of=document, seed=SEED, machine=machine, outdated=len(outdated),
        results=results, plan=plan, suite=SUITE, unit=unit, count=count,
        tables=[_cost_table(form, lines) for form, lines in document["layers"].items()],
        name=shlex.quote(document.get("attention", row)),
    ).rstrip("\n")  # fmt: skip


def _cost_table(form: str, lines: Sequence[Document]) -> str:
    """The costs of a form; questions of the other form have others."""
    head = [f"{form}; tokens", *(f"{line['tokens']:,}" for line in lines)]
    return text_table(head, [
        [what, *(f"{line[name]:.2f}" if line.get(name) is not None else str(line["reason"])
                 for line in lines)]
        for what, name in (("time", "time_ratio"), ("peak memory", "memory_ratio"))
    ])  # fmt: skip


def _lines(row: str, found: Document) -> list[list[str]]:
    """The best variant, those next to this one, and the strongest baseline."""
    others, at, before = found["others"], found["place"] - 1, found["published"]
    lines = {
        other["place"]: [str(other["place"]), other["row"], f"{other['mean']:.1f}",
                         other["verdict"]]
        for other in (others[n] for n in (0, at - 1, at) if 0 <= n < len(others))
    }  # fmt: skip
    code = ", by earlier code" * (row in found["outdated"])
    note = "" if before is None else f" (published{code}: {before:.1f})"
    curve = f"1 seed: {found['curve']}" * bool(found["curve"])
    known = f"published: {found['verdict']}" * bool(found["verdict"])
    lines[found["place"]] = [
        f"{found['place']} of {found['of']}", f"{row}, this run", f"{found['score']:.1f}{note}",
        "; ".join(filter(None, (curve, known))),
    ]  # fmt: skip
    ordered = [line for _, line in sorted(lines.items())]
    if rule := found["baseline"]:
        kind = "variant " * any(other["row"] == rule[0] for other in others)
        ordered.append(["", f"baseline: {kind}{rule[0]}", f"{rule[1]:.1f}", ""])
    return ordered
