"""The displays of runs in progress: trials, checks, costs, and the bars of a grid."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from harness.cli.console import Output, fitting
from harness.cli.grid_view import GridView, bars

if TYPE_CHECKING:
    from harness.records.cost import CostRecord
    from harness.records.record import Record
    from harness.runs import Shown
    from zoo.conformance import Result


def shown() -> "Shown":
    from harness.api import Shown

    return Shown(
        line=typer.echo, trials=show_trials, grid=_grid, fitting=fitting, cost=show_cost,
        check=show_check,
    )  # fmt: skip


@contextmanager
def _grid() -> Iterator[GridView]:
    with bars(Output()) as bar:
        yield GridView(bar, Output(stderr=True))


def show_trials(records: "Sequence[Record]", chosen: "Record | None") -> None:
    from harness.records.frame import of_records
    from reports.shown import failure

    spec = records[0].spec
    typer.echo(f"{spec.attention} on {spec.task.key}, on dev:")
    for record, line in zip(records, of_records(records).to_dict("records"), strict=True):
        grid_point = ", ".join(f"{path}={value}" for path, value in record.spec.values.items())
        result = record.selection.sentence(record.final.dev) if record.final else failure(line)
        typer.echo(f"  {grid_point}: {result}{' (chosen)' if record is chosen else ''}")


def show_cost(record: "CostRecord", new: bool) -> None:
    from harness.records.frame import of_costs
    from reports.cost import text_of, with_ratio

    (line,) = of_costs([record]).to_dict("records")
    text = text_of(line, lambda m: f"{with_ratio(1000 * m['seconds'], m['ratio'])} ms")
    note, spec = "" if new else "  (already present)", record.spec
    typer.echo(f"{line['label']}, {spec.operation}, {spec.length:,} tokens: {text}{note}")


def show_check(total: int, count: int, seconds: float, label: str, result: "Result") -> None:
    progress = f"{count:{len(str(total))}} of {total} {seconds:5.1f} s"
    verdict = "ok  " if result.passed else "FAIL"
    reason = result.expected_failure
    note = f" [expected failure: {reason}]" if reason else ""
    if reason and not result.passed:
        note = f" [passes, but is declared in expected_failures: {reason}; remove it there]"
    typer.echo(f"{progress}  {verdict} {label}: {result.check}: {result.detail}{note}")
