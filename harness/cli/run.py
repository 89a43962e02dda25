"""`harness run`: train variants on tasks."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import arguments, baselines, cells, report
from harness.cli.process import Answer
from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.records.record import Record


def run(
    attention: Annotated[
        list[str] | None,
        typer.Option("--attention", "-a", help="A, A+B, MODULE:CLASS, or A,B,...; repeatable."),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option("--task", "-t", help="TASK or TASK,TASK,...; repeatable; that of a question."),
    ] = None,
    budget: arguments.BudgetOption = "laptop",
    seeds: Annotated[
        str | None,
        typer.Option(help="Seeds and ranges: 0-2,7; by default 0, with --tune 1-5."),
    ] = None,
    device: arguments.DeviceOption = "auto",
    precision: arguments.PrecisionOption = "auto",
    positions: Annotated[
        str, typer.Option(help="learned, rotary or none; by default learned, or a question's.")
    ] = "",
    compiled: Annotated[
        bool | None,
        typer.Option("--compile/--no-compile", help="torch.compile; by default on CUDA only."),
    ] = None,
    set_: arguments.SetOption = None,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Choose the learning rate on dev by seed 0, of four rates."),
    ] = False,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            help="Another grid for --tune: train.FIELD=VALUE,VALUE,... or model.FIELD=...; "
            "repeatable for the product."
        ),
    ] = None,
    match: Annotated[
        str,
        typer.Option(help="parameters: the feed-forward width at which they are softmax's."),
    ] = "",
    tensorboard: arguments.TensorboardOption = None,
    suite: Annotated[
        str, typer.Option(help="Run what is missing of a suite: laptop, or a TOML file.")
    ] = "",
    questions: Annotated[
        str, typer.Option(help="Of the suite, separated by commas; by default all.")
    ] = "",
    cost: Annotated[
        bool,
        typer.Option("--cost/--no-cost", help="Measure time and memory; a suite does at its end."),
    ] = True,
    store: arguments.StoreOption = Path("runs"),
    engine: arguments.EngineOption = "local",
    workers: arguments.WorkersOption = 0,
    threads: arguments.ThreadsOption = 0,
    slurm: arguments.SlurmOption = None,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Repeat finished runs, from the beginning.")
    ] = False,
    keep_checkpoints: Annotated[
        bool,
        typer.Option("--keep-checkpoints", help="Keep the weights of each evaluation."),
    ] = False,
    as_json: arguments.JsonOption = False,
) -> Answer:
    """Train every variant on every task with every seed; report accuracy, speed and memory.

    With --attention alone: the place of the variants among the published rows of a suite.

    Each run is made once: commands on one store, of one machine or several, share its cells.
    Exit 1 if a run failed, or was skipped because the variant does not support the task.
    """
    from harness.cli import tuning
    from harness.events import require_tensorboard, write_events
    from harness.plan import resolve

    resources = arguments.resources(engine, workers, threads, device, slurm)
    run_cells = partial(
        cells.run, folder=store, rerun=rerun, keep=keep_checkpoints, resources=resources, cost=cost
    )
    given = {
        "task": task, "budget": budget != "laptop", "seeds": seeds is not None, "tune": tune,
        "grid": grid, "match": match, "precision": precision != "auto", "positions": positions,
        "compile": compiled is not None, "tensorboard": tensorboard,
    }  # fmt: skip
    if suite:
        from harness.cli import suite as suites

        suites.require_none(given, suite)
        return suites.run(
            suite, attention or (), questions, set_, device, store, measured=cost, as_json=as_json,
            run_cells=partial(run_cells, cost=False),
        )  # fmt: skip
    if not attention:
        raise UserError("no --attention is given; give for example --attention primal")
    if questions:
        raise UserError("--questions are those of a suite; give --suite laptop as well")
    if not any((*given.values(), set_, rerun, keep_checkpoints, not cost)):
        from harness.cli.first import first

        return first(arguments.attentions_in(attention), device, store, resources, as_json)
    if grid and not tune:
        raise UserError("--grid is the grid of --tune; give --tune as well")
    if tensorboard:
        require_tensorboard()
    tasks, attentions = arguments.names_in(task or []), arguments.attentions_in(attention)
    requests = cells.requests(
        tasks, attentions, "0" if tune or seeds is None else seeds, budget=budget, device=device,
        precision=precision, set_=set_, positions=positions, compiled=compiled,
    )  # fmt: skip
    if match:
        requests = cells.matched(requests, match)
    requests = cells.in_faster_precision(requests, precision, store, resources)
    if tune:
        outcomes, count = tuning.run(requests, grid, seeds, run_cells)
    else:
        plans = [resolve(request, announce=typer.echo) for request in requests]
        cells.require_owners(requests, plans)
        outcomes, count = run_cells(plans), len(plans)
    records = [record for record, _ in outcomes]
    if tensorboard:
        write_events(records, tensorboard)
    complete = len(records) == count and all(record.status == "ok" for record in records)
    baselines.fit(records, store)
    content = (_document if as_json else _text)(outcomes, report.attach(records, store), store)
    return Answer(content, 0 if complete else 1)


def _document(
    outcomes: "Sequence[tuple[Record, bool]]", records: "list[Record]", store: Path
) -> dict[str, object]:
    """The rows of the summary of `records`, which have baselines, and the record of each run."""
    from harness.records.store import Store
    from reports import tables

    runs = [
        {
            "path": Store(store).path(record.spec),
            "new": new,
            "attention": record.spec.attention,
            "task": record.spec.task.key,
            "seed": record.spec.seed,
            "status": record.status,
            "reason": record.reason,
        }
        for record, new in outcomes
    ]
    return {"rows": tables.rows_of(records), "runs": runs}


def _text(outcomes: "Sequence[tuple[Record, bool]]", records: "list[Record]", store: Path) -> str:
    """The path of each record, and the summary of `records`, which have baselines."""
    from harness.records.store import Store
    from reports import tables

    notes = {True: "", False: "  (already present; run it again with --rerun)"}
    paths = [f"{Store(store).path(record.spec)}{notes[new]}" for record, new in outcomes]
    summary = tables.summary(records)
    return "\n".join([*paths, "", summary, "", f"leaderboard: harness report --store {store}"])
