"""`harness run --suite`: the missing runs of a suite, then the costs of its rows."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from harness.cli import stores, tuning
from harness.cli.arguments import attentions_in, names_in, settings_of
from harness.cli.check import require_passed
from harness.cli.cost import measure_all
from harness.cli.process import Answer
from harness.cli.runs import fit_baselines
from zoo.registry import UserError

if TYPE_CHECKING:
    import pandas as pd

    from harness.cli.run import RunOptions
    from harness.records.record import Record
    from harness.records.suites import Question, Suite, SuiteRow
    from harness.suite import Step

SECONDS, TIMEOUT = 3.0, 600.0
"""Sampling time of a measurement of cost, and its time limit: the defaults of `harness cost`."""


def run(options: "RunOptions") -> Answer:
    """Run what is missing, question by question, then measure what the rows cost.

    Raises:
        UserError: a question or a row is unknown, data are missing, or a check fails.
    """
    from harness import suite as suites
    from harness.environment import pick_device
    from harness.records.suites import find

    suite = find(options.suite)
    kind: Any = pick_device(options.device).type
    names = names_in([options.questions]) if options.questions else []
    chosen = [suite.question(name) for name in names] or suite.questions
    named = attentions_in(options.attention or ())
    rows = suites.rows_of(suite, named, settings_of(options.set_))
    if suite.level == "step":
        # The rows of softmax, which the others are compared with, are always measured.
        first = suites.rows_of(suite, [suite.rows[0].attention], {})
        rows = (*first, *(row for row in rows if row not in first))
        return _steps(suites.steps(suite, chosen, rows, kind), options)
    missing = suites.missing_data(suite, chosen)
    for name, remedy in missing.items():
        typer.echo(f"missing data of {name}: {remedy}", err=True)
    chosen = [question for question in chosen if question.name not in missing]
    if options.cost and not suite.published:
        # Before any run: it rejects what cannot be measured after all of them.
        suites.costs(suite, rows, kind)
    _require_certificates(rows)
    complete = True
    for number, question in enumerate(chosen, 1):
        typer.echo(f"question {number} of {len(chosen)}: {question.title}")
        complete &= _train(suite, question, rows, kind, options)
    if options.cost and not suite.published:
        complete &= cost(suite, rows, kind, options.store)
    text, answers = _content(suite, options.store)
    return Answer({"answers": answers} if options.as_json else text, 0 if complete else 1)


def _train(
    suite: "Suite", question: "Question", rows: "Sequence[SuiteRow]", device: Any,
    options: "RunOptions",
) -> bool:  # fmt: skip
    """Make the runs of a question; return whether all have finished."""
    from harness.plan import resolve
    from harness.suite import requests

    wanted = requests(options.suite, question, rows, device)
    execute, seeds = partial(options.execute, cost=False), question.seeds
    if not wanted:
        return True
    if question.rates:
        needs_seeds = _needs_seeds(suite, question, options.store)
        outcomes, count = tuning.run(wanted, None, ",".join(map(str, seeds)), execute, needs_seeds)
    else:
        single = [replace(request, seed=seed) for request in wanted for seed in seeds]
        plans = [resolve(request, announce=typer.echo) for request in single]
        outcomes, count = execute(plans), len(plans)
    return len(outcomes) == count and all(record.status == "ok" for record, _ in outcomes)


def _steps(steps: "Sequence[Step]", options: "RunOptions") -> Answer:
    """Measure the training steps that have no record; show them beside the published ones."""
    from harness.records.frame import of_costs
    from reports import paper_costs

    specs = {step.spec.id: step.spec for step in steps}
    how = options.store, SECONDS, TIMEOUT, options.rerun
    records, code = measure_all([*specs.values()], *how)
    found = step_frame(steps, of_costs(records))
    text = f"\n{paper_costs.terminal(found)}\n\npages: harness report --store {options.store}"
    return Answer({"rows": paper_costs.lines(found)} if options.as_json else text, code)


def cost(suite: "Suite", rows: "Sequence[SuiteRow]", device: Any, store: Path) -> bool:
    """Measure what has no record; return whether nothing crashed or failed.

    Raises:
        UserError: runs are in progress on this machine, or the store cannot be written.
    """
    from harness.records.store import Store
    from harness.suite import costs

    if running := Store(store).locks.running_here():
        raise UserError(
            f"{running} runs are in progress on this machine, beside which nothing is measured; "
            f"measure later with: harness run --suite {suite.key} --store {store}"
        )
    _, code = measure_all(costs(suite, rows, device), store, SECONDS, TIMEOUT, rerun=False)
    return code == 0


def _needs_seeds(suite: "Suite", question: "Question", store: Path) -> "Callable[[Record], bool]":
    """Whether a row, by its chosen trial, has the other seeds of a question."""
    from harness.records.frame import of_records
    from reports.suites import answers

    @cache
    def at_baseline() -> set[str]:
        content = stores.content(store)
        if question.rules == "all":
            recipe = f"{suite.key}/{question.name}"
            fit_baselines([run for run in content.records if run.spec.budget == recipe], store)
            content = stores.content(store)
        # Trials alone: seeds that are there already must not decide whether others follow.
        trials = content.runs[content.runs["role"] != "final"]
        found = answers(trials, suite, content.rules)
        return {*found[(found["question"] == question.name) & found["at_baseline"]]["row"]}

    def needs_seeds(chosen: "Record") -> bool:
        if question.seeds_at_baseline or chosen.is_baseline:
            return True
        return of_records([chosen])["row"].iloc[0] not in at_baseline()

    return needs_seeds


def _require_certificates(rows: "Sequence[SuiteRow]") -> None:
    """Check the variants of other packages, whose claims no test of this one proves."""
    from harness.provenance import is_foreign
    from zoo.composition import Composition

    for row in rows:
        for name in Composition.parse(row.attention).names:
            if is_foreign([name]):
                require_passed(name, row.options.get(name, {}))


def _content(suite: "Suite", store: Path) -> "tuple[str, list[dict[Hashable, Any]]]":
    """The matrix of a suite as text, and its answers."""
    from reports.pages.suite import tables, terminal

    found = stores.content(store)
    if suite.key not in {*found.runs.get("suite", ())}:
        return "no run has finished", []
    of = tables(suite, found.runs, found.rules, found.costs)
    text = f"\n{terminal(of)}\n\npages: harness report --store {store}"
    return text, of.answers.to_dict("records")


def step_tables(
    costs: "pd.DataFrame", files: Sequence[str] = ()
) -> "list[tuple[Suite, pd.DataFrame]]":
    """Each suite whose results are costs of training steps, with the costs in a store.

    Args:
        costs: of `harness cost`, a frame.
        files: of suites that are not built in.
    """
    if costs.empty or not costs["level"].eq("step").any():
        return []
    from harness.records.suites import find, names
    from harness.suite import steps

    of_steps = [suite for suite in map(find, [*names(), *files]) if suite.level == "step"]
    found = [
        (suite, step_frame(steps(suite, suite.questions, suite.rows, "cpu"), costs))
        for suite in of_steps
    ]
    return [(suite, measured) for suite, measured in found if len(measured)]


def step_frame(steps: "Sequence[Step]", costs: "pd.DataFrame") -> "pd.DataFrame":
    """The costs of training steps beside the published ones; see `reports.paper_costs.steps`."""
    import pandas as pd

    from reports import paper_costs

    wanted = [{**step._asdict(), "shape": step.spec.shape} for step in steps]
    return paper_costs.steps(pd.DataFrame(wanted).drop(columns="spec"), costs)
