"""`harness run --suite`: the missing runs of a suite, then the costs of its rows."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from harness.cli import tuning
from harness.cli.arguments import attentions_in, names_in, settings_of
from harness.cli.check import require_passed
from harness.cli.cost import measure_all
from harness.cli.process import Answer
from harness.records.suites import SUFFIX
from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.cli.run import RunOptions
    from harness.records.record import Record
    from harness.records.suites import Question, Suite, SuiteRow
    from harness.suite import Step

SECONDS, TIMEOUT = 3.0, 600.0
"""Of sampling for a measurement of cost, and of all of it, as `harness cost` has them."""


def run(options: "RunOptions") -> Answer:
    """Run what is missing, question by question, then measure what the rows cost.

    Raises:
        UserError: a question or a row is unknown, data are missing, or a check fails.
    """
    from harness import suite as suites
    from harness.environment import pick_device
    from harness.plan import resolve
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
    _require_certificates(rows)
    complete, execute = True, partial(options.execute, cost=False)
    for number, question in enumerate(chosen, 1):
        typer.echo(f"question {number} of {len(chosen)}: {question.title}")
        requests = suites.requests(options.suite, question, rows, kind)
        if requests:
            seeds = ",".join(map(str, question.seeds))
            if question.rates:
                goes_on = _has_more_seeds(suite, question, options.store)
                outcomes, count = tuning.run(requests, None, seeds, execute, goes_on)
            else:
                plans = [
                    resolve(replace(request, seed=seed), announce=typer.echo)
                    for request in requests
                    for seed in question.seeds
                ]
                outcomes, count = execute(plans), len(plans)
            complete &= len(outcomes) == count and all(r.status == "ok" for r, _ in outcomes)
    if options.cost and not suite.published:
        complete &= cost(suite, rows, kind, options.store)
    text, answers = _content(suite, options.suite, options.store)
    return Answer({"answers": answers} if options.as_json else text, 0 if complete else 1)


def _steps(steps: "Sequence[Step]", options: "RunOptions") -> Answer:
    """Measure the training steps that have no record; show them beside the published ones."""
    from harness.cli.tables import step_frame
    from harness.records.frame import of_costs
    from reports import paper_costs

    specs = {step.spec.id: step.spec for step in steps}
    records = measure_all([*specs.values()], options.store, SECONDS, TIMEOUT, rerun=options.rerun)
    found = step_frame(steps, of_costs(records))
    failed = any(record.status in ("crashed", "failed") for record in records)
    if options.as_json:
        return Answer({"rows": paper_costs.lines(found)}, int(failed))
    text = f"\n{paper_costs.terminal(found)}\n\npages: harness report --store {options.store}"
    return Answer(text, int(failed))


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
    records = measure_all(costs(suite, rows, device), store, SECONDS, TIMEOUT, rerun=False)
    return not any(record.status in ("crashed", "failed") for record in records)


def _has_more_seeds(
    suite: "Suite", question: "Question", store: Path
) -> "Callable[[Record], bool]":
    """Whether a row, by its chosen trial, has the other seeds of a question."""
    from harness.cli.report import rules_of
    from harness.records import frame
    from reports.suites import answers

    @cache
    def at_baseline() -> set[str]:
        found = answers(frame.frame(store), suite, rules_of(store))
        return {*found[(found["question"] == question.name) & found["at_baseline"]]["row"]}

    def has(chosen: "Record") -> bool:
        if question.seeds_at_baseline or chosen.is_baseline:
            return True
        return frame.of_records([chosen])["row"].iloc[0] not in at_baseline()

    return has


def _require_certificates(rows: "Sequence[SuiteRow]") -> None:
    """Check the variants of other packages, whose claims no test of this one proves."""
    from harness.provenance import is_foreign
    from zoo.composition import Composition

    for row in rows:
        for name in Composition.parse(row.attention).names:
            if is_foreign([name]):
                require_passed(name, row.options.get(name, {}))


def _content(suite: "Suite", name: str, store: Path) -> "tuple[str, list[dict[Hashable, Any]]]":
    """The matrix of a suite as text, and its answers."""
    from harness.cli.report import rules_of
    from harness.cli.tables import suite_tables
    from harness.records import frame
    from reports.pages.suite import terminal

    files = [name] if name.endswith(SUFFIX) else []
    for of in suite_tables(frame.frame(store), frame.costs(store), rules_of(store), files):
        if of.suite.key == suite.key:
            text = f"\n{terminal(of)}\n\npages: harness report --store {store}"
            return text, of.answers.to_dict("records")
    return "no run has finished", []
