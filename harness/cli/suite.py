"""`harness run --suite`: the missing runs of a suite, then the costs of its rows."""

from collections.abc import Callable, Hashable, Mapping, Sequence
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
    from harness.plan import Plan
    from harness.records.record import Record
    from harness.records.suites import Suite, SuiteRow

    Outcomes = list[tuple[Record, bool]]

SECONDS, TIMEOUT = 3.0, 600.0
"""Of sampling for a measurement of cost, and of all of it, as `harness cost` has them."""


def require_none(given: Mapping[str, Any], suite: str) -> None:
    """Reject options that a suite fixes.

    Raises:
        UserError: one of `given` has a value.
    """
    for option, value in given.items():
        if value:
            raise UserError(f"--{option} is not possible: suite {suite} fixes it; leave it out")


def run(
    name: str,
    attention: Sequence[str],
    questions: str,
    set_: Sequence[str] | None,
    device: str,
    store: Path,
    *,
    measured: bool,
    as_json: bool,
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
        as_json: whether to answer with a document.
        run_cells: runs plans; see `harness.cli.tuning.run`.
    """
    from harness import suite as suites
    from harness.environment import pick_device
    from harness.records.suites import find

    suite = find(name)
    kind: Any = pick_device(device).type
    chosen = (
        [suite.question(one) for one in names_in([questions])] if questions else suite.questions
    )
    rows = suites.rows_of(suite, attentions_in(attention), settings_of(set_))
    suites.require_data(chosen)
    _require_certificates(rows)
    complete = True
    for number, question in enumerate(chosen, 1):
        typer.echo(f"question {number} of {len(chosen)}: {question.title}")
        requests = suites.requests(name, question, rows, kind)
        if requests:
            seeds = ",".join(map(str, question.seeds))
            outcomes, count = tuning.run(requests, None, seeds, run_cells)
            complete &= len(outcomes) == count and all(r.status == "ok" for r, _ in outcomes)
    if measured:
        complete &= cost(suite, rows, kind, store)
    text, answers = _content(suite, name, store)
    return Answer({"answers": answers} if as_json else text, 0 if complete else 1)


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
            if is_foreign([name]):
                require_passed(name, row.options.get(name, {}))


def _content(suite: "Suite", name: str, store: Path) -> "tuple[str, list[dict[Hashable, Any]]]":
    """The matrix of a suite as text, and its answers."""
    from harness.cli.tables import suite_tables
    from harness.records.store import CostStore, Store
    from reports.pages.suite import terminal

    files = [name] if name.endswith(SUFFIX) else []
    records, costs = Store(store).read()[0], CostStore.within(store).read()[0]
    for of in suite_tables(records, costs, store, files):
        if of.suite.key == suite.key:
            text = f"\n{terminal(of)}\n\npages: harness report --store {store}"
            return text, of.answers.to_dict("records")
    return "no run has finished", []
