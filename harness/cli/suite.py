"""`harness run --suite`: the missing runs of a suite, then the costs of its rows."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness import runs, stores
from harness import suite as suites
from harness.arguments import attentions_in, names_in, settings_of
from harness.catalogue import described
from harness.checks import require_passed
from harness.cli import check
from harness.cli.cost import exit_code, show
from harness.cli.process import Answer
from harness.cli.progress import execution
from harness.costs.reference import REFERENCE
from harness.costs.sweep import measure_all
from harness.environment import describe, pick_device
from harness.interrupts import continued
from harness.provenance import is_foreign, is_outdated
from harness.records.cost import CostRecord, CostSpec
from harness.records.fields import Device
from harness.records.frame import of_costs
from harness.records.store import CostStore, Store
from harness.records.suites import Suite, SuiteQuestion, SuiteRow, find
from harness.report import step_frame
from reports import papers
from reports.pages.suite import tables, terminal
from zoo.composition import Composition
from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.cli.run import RunOptions


def run(options: "RunOptions") -> Answer:
    """Run what is missing, question by question, then measure what the rows cost."""
    suite = find(options.suite)
    device = pick_device(options.device)
    names = names_in([options.questions]) if options.questions else []
    chosen = [suite.question(name) for name in names] or suite.questions
    named = attentions_in(options.attention or ())
    rows = suites.rows_of(suite, named, settings_of(options.set_))
    if suite.level == "step":
        # The rows of softmax, which the others are compared with, are always measured.
        first = suites.rows_of(suite, [suite.rows[0].attention], {})
        rows = (*first, *(row for row in rows if row not in first))
        return _steps(suites.steps(suite, chosen, rows, device), options)
    missing = suites.missing_data(suite, chosen)
    for name, remedy in missing.items():
        typer.echo(f"missing data of {name}: {remedy}", err=True)
    chosen = [question for question in chosen if question.name not in missing]
    has_costs = options.cost and not suite.published
    if has_costs:
        # Before any run: it rejects what cannot be measured after all of them, and bad files.
        costs = CostStore.within(options.store)
        for spec in suites.costs(suite, rows, device):
            costs.find(spec)
    _require_certificates(rows, options.store)
    complete = True
    for number, question in enumerate(chosen, 1):
        typer.echo(f"question {number} of {len(chosen)}: {question.title}")
        complete &= _train(suite, question, rows, device, options)
    if has_costs:
        complete &= cost(suite, rows, device, options)
    return _answer(suite, options, 0 if complete else 1)


def _train(
    suite: Suite, question: SuiteQuestion, rows: Sequence[SuiteRow], device: Device,
    options: "RunOptions",
) -> bool:  # fmt: skip
    """Make the runs of a question; return whether all have finished."""
    how, seeds = execution(replace(options, cost=False)), question.seeds
    found = suites.specs_of(suite, question, rows, device, typer.echo)
    if not found:
        return True
    if question.rates:
        outcomes, count = runs.tune(found, seeds, how, goes_beyond=True)
    else:
        specs = [spec.model_copy(update={"seed": seed}) for (spec,) in found for seed in seeds]
        outcomes, count = runs.execute(specs, how), len(specs)
    return len(outcomes) == count and all(record.status == "ok" for record, _ in outcomes)


def _steps(steps: Sequence[suites.Step], options: "RunOptions") -> Answer:
    """Measure the training steps that have no record; show them beside the published ones."""
    records = measured([step.spec for step in steps], options)
    found = step_frame(steps, of_costs(records))
    text = f"\n{papers.step_text(found)}\n\npages: harness report --store {options.store}"
    return Answer(
        {"rows": papers.step_lines(found)} if options.as_json else text, exit_code(records)
    )


def measured(specs: Sequence[CostSpec], options: "RunOptions") -> list[CostRecord]:
    """Measure what has no record, and print each as it ends."""
    repeat = {"rerun": options.rerun, "keep_outdated": options.keep_outdated}
    with continued(by_same_command=not options.rerun):
        return measure_all(specs, options.store, **repeat, show=show)


def cost(suite: Suite, rows: Sequence[SuiteRow], device: Device, options: "RunOptions") -> bool:
    """Measure what has no record; return whether nothing crashed or failed."""
    store = options.store
    if running := Store(store).locks.running_here():
        raise UserError(
            f"nothing is measured while runs are in progress on this machine ({running}); "
            f"measure later with: harness run --suite {suite.key} --store {store}"
        )
    specs = suites.costs(suite, rows, device)
    _copy_published(specs, store)
    return not exit_code(measured(specs, options))


def _copy_published(specs: Sequence[CostSpec], store: Path) -> None:
    """Copy the published costs of softmax to a store that lacks them, of this machine and PyTorch.

    They are rows beside the others: each measurement compares with softmax itself. A cost of
    other code than now is not copied.
    """
    published, own = CostStore.within(stores.PUBLISHED), CostStore.within(store)
    for spec in specs:
        if spec.attention == REFERENCE and own.find(spec) is None:
            record = published.find(spec)
            here = describe(spec.device).versions["torch"]
            if (
                record and record.status == "ok" and not is_outdated(record)
                and record.environment.versions["torch"] == here
            ):  # fmt: skip
                own.write(record)


def _require_certificates(rows: Sequence[SuiteRow], store: Path) -> None:
    """Check the variants of other packages, whose claims no test of this one proves."""
    for row in rows:
        for name in Composition.parse(row.attention).names:
            if is_foreign([name]):
                options = row.options.get(name, {})
                require_passed(name, options, store, check.show, typer.echo)


def _answer(suite: Suite, options: "RunOptions", code: int) -> Answer:
    """The matrix of a suite as text, or its results as a document."""
    found, text, lines = stores.content(options.store), "no run has finished", []
    if suite.key in {*found.runs.get("suite", ())}:
        of = tables(suite, found.runs, found.rules, found.costs, described())
        text = f"\n{terminal(of)}\n\npages: harness report --store {options.store}"
        lines = of.answers.to_dict("records")
    return Answer({"answers": lines} if options.as_json else text, code)
