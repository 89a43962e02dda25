"""`harness reproduce`: measure a published table again, beside the published figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from harness.cli import arguments
from harness.cli.cost import measure_all
from harness.cli.report import within, write_pages
from zoo.registry import UserError, unknown

if TYPE_CHECKING:
    from harness.records.cost import CostRecord
    from harness.reproduce import Cell
    from reports.tables.reproduction import Entry

PAPERS = ("primal",)
"""Chen et al. 2023, arXiv 2305.19798."""

ROWS = "softmax,nystrom,linformer,performer,reformer,softmax+primal,primal"
"""The rows of its Table 3; softmax is the published Transformer."""

SERIES = (
    "uea-ethanol-concentration,uea-face-detection,uea-handwriting,uea-heartbeat,"
    "uea-japanese-vowels,uea-pems-sf,uea-self-regulation-scp1,uea-self-regulation-scp2,"
    "uea-spoken-arabic-digits,uea-uwave-gesture-library"
)
"""The columns of its Table 1."""

TASKS = "listops,text,retrieval,image,pathfinder"

OTHERS = {
    "1": f"its accuracies are those of: harness run --budget paper --task {SERIES} "
    "--attention softmax,softmax+primal,primal; harness report shows them beside the published "
    "ones",
    "2": "its accuracies are those of: harness run --budget paper --task "
    f"{TASKS} --attention {ROWS}; harness report shows them beside the published ones",
    "4": "D4RL is no task here",
    "figure": "accuracy against time is drawn by harness report from the runs of --budget paper",
}
"""What exists for the tables that are not reproduced by this command."""


def reproduce(
    paper: Annotated[str, typer.Argument(help="primal: Chen et al. 2023, arXiv 2305.19798.")],
    table: Annotated[str, typer.Option(help="3, the cost of the Long Range Arena.")] = "3",
    attention: Annotated[
        list[str] | None,
        typer.Option("--attention", "-a", help="Rows: A, or A,B,...; repeatable. [default: all]"),
    ] = None,
    task: Annotated[str, typer.Option(help="Columns: TASK, or TASK,TASK,...")] = TASKS,
    budget: Annotated[str, typer.Option(help="Recipe that gives the shapes.")] = "paper",
    device: arguments.DeviceOption = "auto",
    precision: arguments.PrecisionOption = "auto",
    store: arguments.StoreOption = Path("runs"),
    seconds: arguments.SecondsOption = 3.0,
    timeout: arguments.TimeoutOption = 600.0,
    rerun: Annotated[bool, typer.Option("--rerun", help="Measure finished cells again.")] = False,
) -> None:
    """Measure a table of a paper again: time and memory of training steps.

    Cells are those of `harness cost --level step`: each in a process of its own, alternately with
    SDPA softmax, and not measured again once they have a record. Exit 1 if a cell crashed or
    failed; too little memory or time is a result.
    """
    if paper not in PAPERS:
        raise UserError(unknown("paper", paper, PAPERS))
    if table in OTHERS:
        raise UserError(f"table {table} of {paper} is not reproduced: {OTHERS[table]}")
    if table != "3":
        raise UserError(unknown("table", table, ("3", *OTHERS)))
    from harness import environment
    from harness.reproduce import cells
    from reports import pages, tables

    chosen = environment.pick_device(device)
    wanted = cells(
        arguments.names_in(attention or [ROWS]),
        arguments.names_in([task]),
        budget=budget,
        device=cast(Any, chosen.type),
        precision=environment.pick_precision(precision, chosen),
    )
    specs = list({cell.spec.id: cell.spec for cell in wanted}.values())
    records = measure_all(specs, store, seconds, timeout, rerun)
    entries = _entries(wanted, records)
    typer.echo(f"\n{tables.reproduction_summary(entries)}\n")
    write_pages(within(store, pages.reproduction_files(entries, budget)))
    failed = any(record.status in ("crashed", "failed") for record in records)
    raise typer.Exit(1 if failed else 0)


def _entries(cells: "Sequence[Cell]", records: "Sequence[CostRecord]") -> "list[Entry]":
    """The records of the cells, each with that of softmax by its formula on its task."""
    from reports.tables.reproduction import REFERENCE, Entry

    by_id = {record.spec.id: record for record in records}
    naive = {cell.task: by_id[cell.spec.id] for cell in cells if cell.attention == REFERENCE}
    return [Entry(c.task, c.attention, by_id[c.spec.id], naive[c.task]) for c in cells]
