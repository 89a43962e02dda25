"""The tables and the figure of a paper: what `harness reproduce` runs for each, and its page."""

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import typer

from harness.cli import arguments, runs
from harness.cli.cost import measure_all
from harness.cli.process import Answer
from harness.cli.report import within, write_pages
from harness.cli.spectrum import write_spectra
from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.engines.choice import Resources
    from harness.plan import Plan
    from harness.records.cost import CostRecord
    from harness.records.record import Record
    from harness.reproduce import Cell, DataSet
    from reports.tables.reproduction import Entry

ARENA = "listops,text,retrieval,image,pathfinder"

SERIES = (
    "uea-ethanol-concentration,uea-face-detection,uea-handwriting,uea-heartbeat,"
    "uea-japanese-vowels,uea-pems-sf,uea-self-regulation-scp1,uea-self-regulation-scp2,"
    "uea-spoken-arabic-digits,uea-uwave-gesture-library"
)

SAMPLES = 8
"""Examples of dev whose attention matrices are in the figure."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `harness reproduce`."""

    table: str
    attentions: Sequence[str]
    tasks: Sequence[str]
    budget: str
    device: str
    precision: str
    store: Path
    rerun: bool
    as_json: bool
    data: Path = Path()
    seeds: str = "0"
    workers: int = 0
    threads: int = 0
    seconds: float = 3.0
    timeout: float = 600.0


def accuracies(options: Options) -> Answer:
    """Train every row on every task that is present; write its accuracy and the published one."""
    from harness.reproduce import tasks_of

    return _results(options, tasks_of(options.tasks, options.budget))


def returns(options: Options) -> Answer:
    """Train every row on every data set that is present; write its return and the published one."""
    from harness.reproduce import D4RL, trajectories_of

    if not options.data.is_dir():
        raise UserError(f"--data {options.data} is no folder; give the folder of the files of D4RL")
    return _results(options, trajectories_of(options.tasks or D4RL, options.data))


def _results(options: Options, data_sets: "Sequence[DataSet]") -> Answer:
    from reports import pages, tables
    from reports.tables.reproduced_results import Results, lines

    plans, missing = _plans(options, data_sets)
    records = _trained(options, list(plans.values()))
    columns = {name: plan.spec.task.key for (name, *_), plan in plans.items()}
    made = Results(
        options.table, options.budget, columns, tuple(options.attentions), tuple(records), missing
    )
    files = write_pages(within(options.store, pages.results_files(made)))
    code = _exit_code(plans, records)
    if options.as_json:
        return Answer({"rows": [*lines(made)], "files": files}, code)
    return Answer(f"\n{tables.results_summary(made)}", code)


def figure(options: Options) -> Answer:
    """Train every row, save its weights, and compute the spectra of its attention matrices."""
    from harness.reproduce import tasks_of

    plans, missing = _plans(options, tasks_of(options.tasks, options.budget))
    records = _trained(options, list(plans.values()), keep=True)
    finished = [record for record in records if record.final]
    document: dict[str, object] = {"rows": [], "files": []}
    if finished:
        document = write_spectra(finished, options.store, SAMPLES)
    for task, remedy in missing.items():
        typer.echo(f"missing: {task}: {remedy}", err=True)
    return Answer(document if options.as_json else "", _exit_code(plans, records))


def costs(options: Options) -> Answer:
    """Measure the training steps of every row at the shapes of every task."""
    from harness import environment
    from harness.reproduce import cells as cells_of
    from reports import pages, tables
    from reports.tables.reproduction import line

    chosen = environment.pick_device(options.device)
    wanted = cells_of(
        options.attentions,
        options.tasks,
        budget=options.budget,
        device=cast(Any, chosen.type),
        precision=environment.pick_precision(options.precision, chosen),
    )
    specs = list({cell.spec.id: cell.spec for cell in wanted}.values())
    records = measure_all(specs, options.store, options.seconds, options.timeout, options.rerun)
    entries = _entries(wanted, records)
    made = pages.reproduction_files(entries, options.budget)
    files = write_pages(within(options.store, made))
    failed = any(record.status in ("crashed", "failed") for record in records)
    if options.as_json:
        return Answer({"rows": [*map(line, entries)], "files": files}, int(failed))
    return Answer(f"\n{tables.reproduction_summary(entries)}", int(failed))


def _plans(
    options: Options, data_sets: "Sequence[DataSet]"
) -> "tuple[dict[tuple[str, str, int], Plan], dict[str, str]]":
    """The runs of all data sets that are present, and how to get each of the others.

    Raises:
        UserError: an option is wrong, or no data set is present.
    """
    from harness.plan import resolve

    # Before data are generated.
    _resources(options)
    missing = {one.name: one.missing for one in data_sets if one.missing}
    if len(missing) == len(data_sets):
        name, remedy = next(iter(missing.items()))
        of = f"for {name} " if len(missing) > 1 else ""
        raise UserError(f"the data of {', '.join(missing)} are missing; {of}{remedy}")
    announce = partial(typer.echo, err=True)
    plans = {}
    for column in data_sets:
        if column.name not in missing:
            requests = runs.requests(
                arguments.Runs(
                    attention=[*options.attentions], task=[column.task], seeds=options.seeds,
                    budget=options.budget, device=options.device, precision=options.precision,
                    set_=[*column.settings],
                )
            )  # fmt: skip
            requests = runs.in_faster_precision(
                requests, options.precision, options.store, _resources(options), announce
            )
            for request in requests:
                key = column.name, request.attention, request.seed
                plans[key] = resolve(request, announce=announce)
    return plans, missing


def _resources(options: Options) -> "Resources":
    where = arguments.Execution(workers=options.workers, threads=options.threads)
    return where.resources(options.device)


def _trained(options: Options, plans: "Sequence[Plan]", keep: bool = False) -> "list[Record]":
    outcomes = runs.execute(
        plans, options.store, rerun=options.rerun, keep=keep, resources=_resources(options)
    )
    return [record for record, _ in outcomes]


def _exit_code(plans: Sized, records: "Sequence[Record]") -> int:
    complete = len(records) == len(plans) and all(record.final for record in records)
    return 0 if complete else 1


def _entries(cells: "Sequence[Cell]", records: "Sequence[CostRecord]") -> "list[Entry]":
    """The records of the cells, each with that of softmax by its formula on its task."""
    from reports.tables.reproduction import REFERENCE, Entry

    by_id = {record.spec.id: record for record in records}
    naive = {cell.task: by_id[cell.spec.id] for cell in cells if cell.attention == REFERENCE}
    return [Entry(c.task, c.attention, by_id[c.spec.id], naive[c.task]) for c in cells]


class Table(NamedTuple):
    """A table or figure of the paper.

    Attributes:
        reproduce: measures and writes it, and returns what is printed.
        rows: its variants by the names that they have here; softmax is the published Transformer.
        tasks: its columns; empty for the data sets of D4RL.
        options: the options that this table has, of those that not all tables have.
        any_task: whether other tasks can be columns too.
    """

    reproduce: Callable[[Options], Answer]
    rows: str
    tasks: str
    options: frozenset[str]
    any_task: bool = False


RUNS = frozenset({"seeds", "workers", "threads"})

TABLES: Mapping[str, Table] = {
    "1": Table(
        accuracies,
        "softmax,linear,reformer,longformer,performer,yoso,cosformer,soft,flowformer,primal,"
        "softmax+primal",
        SERIES,
        RUNS,
    ),
    "2": Table(
        accuracies,
        "softmax,reformer,performer,linformer,nystrom,longformer,yoso,primal,softmax+primal",
        ARENA,
        RUNS,
    ),
    "3": Table(
        costs,
        "softmax,nystrom,linformer,performer,reformer,softmax+primal,primal",
        ARENA,
        frozenset({"seconds", "timeout"}),
    ),
    "4": Table(
        returns,
        "softmax,linear,performer,cosformer,softmax+primal",
        "",
        RUNS | {"data"},
    ),
    "figure": Table(figure, "softmax,softmax+primal,primal", "image", RUNS, any_task=True),
}
"""By number: accuracy on time series and on the Long Range Arena, costs there, returns, spectra."""
