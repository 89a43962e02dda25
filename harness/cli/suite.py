"""`harness run --suite`: the missing runs of a suite, then the costs of its rows."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from harness.cli import tuning
from harness.cli.arguments import attentions_in, names_in, settings_of
from harness.cli.check import require_passed
from harness.cli.cost import measure_all
from harness.cli.process import Answer
from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.plan import Plan
    from harness.records.record import Record
    from harness.records.suites import Suite, SuiteRow

    Outcomes = list[tuple[Record, bool]]

SECONDS, TIMEOUT = 3.0, 600.0
"""Of sampling for a measurement of cost, and of all of it, as `harness cost` has them."""


def require_alone(name: str, given: Mapping[str, Any]) -> None:
    """Reject options that a suite fixes; `given` has those options by name.

    Raises:
        UserError: one is given.
    """
    for option, value in given.items():
        if value:
            raise UserError(f"--{option} is not possible: suite {name} fixes it; leave it out")


def run(
    name: str,
    attention: Sequence[str],
    questions: str,
    set_: Sequence[str] | None,
    device: str,
    store: Path,
    *,
    measured: bool,
    run_cells: "Callable[[Sequence[Plan]], Outcomes]",
) -> Answer:
    """Run what is missing, question by question; see `harness.cli.run`.

    Args:
        name: of the suite, or the path of its file.
        attention: texts of `--attention`; none for all rows.
        questions: text of `--questions`; empty for all.
        set_: texts of `--set`.
        device: where runs are, `auto`, `cpu` or `cuda`.
        store: folder of the records.
        measured: whether to measure what the rows cost, when no run is left.
        run_cells: runs plans; see `harness.cli.tuning.run`.
    """
    from harness import suite as suites
    from harness.environment import pick_device
    from harness.records.suites import find

    suite, kind = find(name), pick_device(device).type
    chosen = (
        [suite.question(one) for one in names_in([questions])] if questions else suite.questions
    )
    rows = suites.rows_of(suite, attentions_in(attention), settings_of(set_))
    suites.require_data(chosen)
    _require_certificates(rows)
    records, complete = [], True
    for number, question in enumerate(chosen, 1):
        typer.echo(f"question {number} of {len(chosen)}: {question.title}")
        requests = suites.requests(name, question, rows, kind)
        if requests:
            seeds = ",".join(map(str, question.seeds))
            outcomes, count = tuning.run(requests, None, seeds, run_cells)
            records += [record for record, _ in outcomes]
            complete &= len(outcomes) == count and all(r.status == "ok" for r, _ in outcomes)
    if measured:
        complete &= cost(suite, rows, kind, store)
    return Answer(_text(suite, records, store), 0 if complete else 1)


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


def _require_certificates(rows: "Sequence[SuiteRow]") -> None:
    """Check the variants of other packages, whose claims no test of this one proves."""
    from harness.provenance import is_foreign
    from zoo.composition import Composition

    for row in rows:
        for name in Composition.parse(row.attention).names:
            if is_foreign(Composition.parse(name)):
                require_passed(name, row.options.get(name, {}))


def _text(suite: "Suite", records: "Sequence[Record]", store: Path) -> str:
    """The mean score of each row on each question, in percent where it is an accuracy."""
    from harness.records.frame import of_records

    runs = of_records(records)
    runs = runs[runs["status"] == "ok"] if len(runs) else runs
    if runs.empty:
        return "no run has finished"
    order = [question.name for question in suite.questions if question.name in {*runs["question"]}]
    table = runs.pivot_table(index="row", columns="question", values="score", sort=False)[order]
    text = table.to_string(na_rep="-", float_format="{:.3f}".format)
    return f"\nmean score on test:\n{text}\n\npage: harness report --store {store}"
