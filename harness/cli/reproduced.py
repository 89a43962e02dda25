"""The tables and the figure of `harness reproduce`, each as its runs, its page and an exit code."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from harness.cli import arguments, cells
from harness.cli.cost import measure_all
from harness.cli.report import within, write_pages
from harness.cli.spectrum import write_spectra
from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.plan import Plan
    from harness.records.cost import CostRecord
    from harness.records.record import Record
    from harness.reproduce import Cell
    from reports.tables.reproduction import Entry

SAMPLES = 8
"""Examples of dev whose attention matrices are in the figure."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What is to be made again: the options of `harness reproduce`."""

    table: str
    attentions: Sequence[str]
    tasks: Sequence[str]
    budget: str
    device: str
    precision: str
    store: Path
    rerun: bool
    as_json: bool
    seeds: str = "0"
    workers: int = 0
    threads: int = 0
    seconds: float = 3.0
    timeout: float = 600.0


def accuracies(replay: Replay) -> int:
    """Train every row on every task whose data are here; write both accuracies side by side."""
    from reports import pages, tables
    from reports.tables.reproduced_accuracy import Results, lines

    plans, missing = _plans(replay)
    records = _trained(replay, plans)
    tasks = {plan.spec.task.name: plan.spec.task.key for plan in plans}
    results = Results(
        replay.table, replay.budget, tasks, tuple(replay.attentions), tuple(records), missing
    )
    _show(replay, lines(results), tables.accuracy_summary(results))
    write_pages(within(replay.store, pages.accuracy_files(results)), quiet=replay.as_json)
    return _exit_code(plans, records)


def figure(replay: Replay) -> int:
    """Train every row, keep its weights, and compute the spectra of its attention matrices."""
    plans, missing = _plans(replay)
    records = _trained(replay, plans, keep=True)
    finished = [record for record in records if record.final]
    if finished:
        write_spectra(finished, replay.store, SAMPLES, replay.as_json)
    for task, how in missing.items():
        typer.echo(f"missing: {task}: {how}", err=True)
    return _exit_code(plans, records)


def costs(replay: Replay) -> int:
    """Measure the training steps of every row at the shapes of every task."""
    from harness import environment
    from harness.reproduce import cells as cells_of
    from reports import pages, tables
    from reports.tables.reproduction import line

    chosen = environment.pick_device(replay.device)
    wanted = cells_of(
        replay.attentions,
        replay.tasks,
        budget=replay.budget,
        device=cast(Any, chosen.type),
        precision=environment.pick_precision(replay.precision, chosen),
    )
    specs = list({cell.spec.id: cell.spec for cell in wanted}.values())
    records = measure_all(
        specs, replay.store, replay.seconds, replay.timeout, replay.rerun, replay.as_json
    )
    entries = _entries(wanted, records)
    _show(replay, map(line, entries), tables.reproduction_summary(entries))
    files = pages.reproduction_files(entries, replay.budget)
    write_pages(within(replay.store, files), quiet=replay.as_json)
    return int(any(record.status in ("crashed", "failed") for record in records))


def _plans(replay: Replay) -> "tuple[list[Plan], dict[str, str]]":
    """The runs of all tasks whose data are here; for each other task, how to get its data.

    Raises:
        UserError: a name is unknown, or no task has its data here.
    """
    from harness.plan import resolve
    from harness.reproduce import missing_data

    missing = missing_data(replay.tasks, replay.budget)
    present = [task for task in replay.tasks if task not in missing]
    if not present:
        task, how = next(iter(missing.items()))
        raise UserError(f"the data of {', '.join(missing)} are missing; {task}: {how}")
    requests = cells.requests(
        present, replay.attentions, replay.seeds, budget=replay.budget, device=replay.device,
        precision=replay.precision, set_=None,
    )  # fmt: skip
    return [
        resolve(request, announce=partial(typer.echo, err=True)) for request in requests
    ], missing


def _trained(replay: Replay, plans: "Sequence[Plan]", keep: bool = False) -> "list[Record]":
    resources = arguments.resources("local", replay.workers, replay.threads, replay.device, None)
    outcomes = cells.run(
        plans, replay.store, rerun=replay.rerun, keep=keep, resources=resources,
        quiet=replay.as_json,
    )  # fmt: skip
    return [record for record, _ in outcomes]


def _show(replay: Replay, rows: Iterable[Mapping[str, object]], summary: str) -> None:
    """Print the rows as JSON where that is wanted, or the summary."""
    if not replay.as_json:
        typer.echo(f"\n{summary}\n")
        return
    for row in rows:
        typer.echo(json.dumps(row))


def _exit_code(plans: "Sequence[Plan]", records: "Sequence[Record]") -> int:
    complete = len(records) == len(plans) and all(record.final for record in records)
    return 0 if complete else 1


def _entries(cells: "Sequence[Cell]", records: "Sequence[CostRecord]") -> "list[Entry]":
    """The records of the cells, each with that of softmax by its formula on its task."""
    from reports.tables.reproduction import REFERENCE, Entry

    by_id = {record.spec.id: record for record in records}
    naive = {cell.task: by_id[cell.spec.id] for cell in cells if cell.attention == REFERENCE}
    return [Entry(c.task, c.attention, by_id[c.spec.id], naive[c.task]) for c in cells]
