"""`harness sweep`: accuracy against one option of the task, the model, training or a variant."""

from pathlib import Path
from typing import Annotated

import typer

from harness.cli import arguments, baselines, cells
from harness.cli.report import read, within, write_pages
from zoo.registry import UserError


def sweep(
    attention: arguments.AttentionOption,
    task: Annotated[str, typer.Option("--task", "-t", help="TASK or TASK,TASK,...")],
    over: Annotated[
        str,
        typer.Option(
            help="NAME.OPTION=VALUE,VALUE,...; NAME is task, model, train, or a variant: "
            "task.pairs=4,8,16."
        ),
    ],
    budget: arguments.BudgetOption = "laptop",
    seeds: arguments.SeedsOption = "0",
    device: arguments.DeviceOption = "auto",
    precision: arguments.PrecisionOption = "auto",
    set_: arguments.SetOption = None,
    store: arguments.StoreOption = Path("runs"),
    engine: arguments.EngineOption = "local",
    workers: arguments.WorkersOption = 0,
    threads: arguments.ThreadsOption = 0,
    slurm: arguments.SlurmOption = None,
) -> None:
    """Train every variant at each value of an option; write a table and a figure of accuracy.

    Finished runs of the store with other values or variants of the same setting are shown as well.
    """
    from harness.plan import resolve
    from harness.records.store import Store
    from harness.sweep import default_of, require_one_processor, varied
    from reports import pages

    ((field, values),) = arguments.values_in("--over", [over]).items()
    resources = arguments.resources(engine, workers, threads, device, slurm)
    requests = cells.requests(
        arguments.names_in([task]), arguments.names_in(attention), seeds, budget=budget,
        device=device, precision=precision, set_=set_,
    )  # fmt: skip
    requests = [one for request in requests for one in varied(request, field, values)]
    requests = cells.in_faster_precision(requests, precision, store, resources)
    plans = [resolve(request, announce=typer.echo) for request in requests]
    cells.require_owners(requests, plans)
    require_one_processor(plans, Store(store))
    outcomes = cells.run(plans, store, resources=resources)
    baselines.fit([record for record, _ in outcomes], store)
    try:
        files = pages.sweep_files(read(store, curves=False)[0], field, default_of(field))
    except ValueError as error:
        raise UserError(f"no page is written: {error}") from error
    write_pages(within(store, files))
    complete = len(outcomes) == len(plans) and all(record.final for record, _ in outcomes)
    raise typer.Exit(0 if complete else 1)
