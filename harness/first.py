"""The place of a variant among the published rows of a suite, and the cost of its layer."""

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch

from harness.arguments import registered
from harness.costs import measurement, sweep
from harness.environment import describe
from harness.records import suites
from harness.records.fields import Device
from harness.records.frame import of_records
from harness.records.spec import RunSpec
from harness.records.suites import Suite, SuiteQuestion, SuiteRow
from harness.records.versions import built_in, is_current
from harness.runs import Execution, at_rate, execute, finals
from harness.suite import layer_costs, rows_of, specs_of
from zoo.registry import UserError

LOG = logging.getLogger(__name__)
SUITES, SEED = ("lra", "laptop"), 1
FORMS = ("causal", "bidirectional")
LENGTHS = (256, 1024, 4096)  # Tokens at which a layer is measured
SECONDS, TIMEOUT = 0.5, 60.0  # Sampling at a length, and its whole measurement at most
Document = dict[str, Any]


def first(names: Sequence[str], how: Execution, named: Sequence[str] = SUITES) -> Document:
    # Trains each variant on the first questions of a suite, and measures a layer.
    device, documents = how.resources.device, []
    if how.resources.engine == "local" and not how.resources.workers and device == "cpu":
        threads = how.resources.threads or os.cpu_count() or 1
        how = replace(how, resources=replace(how.resources, workers=1, threads=threads))
    attentions = registered([*names])
    files = {suites.find(name).key: name for name in named}
    for name, attention in zip(names, attentions, strict=True):
        suite, row, specs = _chosen(attention, [*map(suites.find, named)], device)
        outcomes = execute(specs, how) if specs else []
        runs, answers = of_records(record for record, _ in outcomes), suites.published(suite)
        questions = map(suite.question, suite.first)
        documents.append({
            "row": row.label, "attention": name, "suite": files[suite.key],
            "questions": [place(row.label, question, runs, answers) for question in questions],
            "device": "a CPU" if device == "cpu" else "a GPU",
            "layers": layers_of(suite, row, how) if how.cost else {},
        })  # fmt: skip
    return {"machine": describe(device).device, "rows": documents}


def _chosen(
    attention: str, every: Sequence[Suite], device: Device
) -> tuple[Suite, SuiteRow, list[RunSpec]]:
    for suite in every:
        (row, *_) = rows_of(suite, [attention], {})
        # At the published rate of the row, or the recipe's.
        rates = suites.published(suite).set_index(["row", "question"])["rate"].dropna().to_dict()
        specs = []
        for question in map(suite.question, suite.first):
            for trials in specs_of(suite, question, [row], device):
                first = min(trials, key=lambda trial: trial.distance)
                rate = rates.get((first.row, question.name))
                if rate and question.rates:
                    specs += finals(at_rate(first, rate), [SEED])
                else:
                    # Without trials: not a result of the suite.
                    specs.append(first.model_copy(update={"seed": SEED, "role": ""}))
        if specs or suite is every[-1]:
            return suite, row, specs
    raise UserError("no suite is named; give one or more")


def place(row: str, question: SuiteQuestion, runs: pd.DataFrame, answers: pd.DataFrame) -> Document:
    found: Document = {"title": question.title, "asks": question.asks, "failed": False}
    names = (row, question.name)
    run = next((r for r in runs.to_dict("records") if (r["row"], r["question"]) == names), None)
    if run is None:
        return found | {"score": None, "reason": f"{row} lacks the form that this needs"}
    if run["status"] != "ok":
        return found | {"score": None, "reason": run["reason"], "failed": True}
    low, high = (f"{run[end]:z,.{run['digits']}f}" for end in ("low", "high"))
    interval = "" if pd.isna(run["low"]) else f"[{low}, {high}]"
    own = {"declared": run["declared"], "score": run["score"], "interval": interval}
    return placed(found | own, row, question.name, answers)


def placed(found: Document, row: str, question: str, answers: pd.DataFrame) -> Document:
    lines = answers[answers["question"] == question]
    others = lines[lines["row"] != row].sort_values("mean", ascending=False, kind="stable")
    several = others[others["seeds"] > 1]
    others = several if len(several) else others  # A row of one seed says nothing of the others
    place = 1 + int((others["mean"] > found["score"]).sum())
    ranked = others.assign(place=[n for n in range(1, len(others) + 2) if n != place])
    before = next(iter(lines[lines["row"] == row].to_dict("records")), {})
    rules = others[others["baseline"] != ""].set_index("baseline")["baseline_value"].to_dict()
    code = dict(zip(lines["row"], lines["version"], strict=True))
    return found | {
        "place": place, "of": len(others) + 1, "ranks": bool(lines["answered"].any()),
        "others": ranked[["place", "row", "mean", "interval"]].to_dict("records"),
        "published": before.get("mean"),
        "outdated": [name for name, text in code.items() if not is_current(text, built_in())],
        "baseline": max(rules.items(), key=lambda rule: rule[1], default=None),
    }  # fmt: skip


def layers_of(suite: Suite, row: SuiteRow, how: Execution) -> dict[str, list[Document]]:
    batch: Any = {"train": "1"}
    device = how.resources.device
    changes = {"lengths": LENGTHS, "passes": ("train",), "batch": batch}
    plan = suite.cost.model_copy(update=changes)
    specs = layer_costs(suite.model_copy(update={"cost": plan}), row, device)
    # The first of several specifications of softmax is the row.
    of_row = {(spec.causal, spec.length): spec for spec in reversed(specs)}
    if not of_row:
        return {}
    rates = measurement.measure_limits(torch.device(device), suite.cost.precision, 0.1)
    found: dict[str, list[Document]] = {form: [] for form in FORMS}
    for done, ((causal, length), spec) in enumerate(sorted(of_row.items(), reverse=True), 1):
        form = FORMS[0 if causal else 1]
        text = f"{form}, {length:,} tokens ({done} of {len(of_row)})"
        LOG.info("%s, cost of a layer: %s", row.label, text)
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
