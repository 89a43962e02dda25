"""`harness study locality`: measure the range of attention that a task needs."""

import warnings
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import arguments, baselines, runs
from harness.cli.report import read, within, write_pages
from zoo.registry import UserError


def locality(
    task: Annotated[str, typer.Argument(help="TASK or TASK,TASK,...")],
    windows: Annotated[
        str, typer.Option(help="Window and block sizes in tokens, separated by commas.")
    ] = "8,32,128",
    budget: arguments.BudgetOption = "laptop",
    seeds: arguments.SeedsOption = "0",
    device: arguments.DeviceOption = "auto",
    precision: arguments.PrecisionOption = "auto",
    set_: arguments.SetOption = None,
    store: arguments.StoreOption = Path("runs"),
) -> None:
    """Measure accuracy against the window of attention, and with shuffled blocks of tokens."""
    from harness.locality import shuffled, windowed
    from reports import pages

    sizes = arguments.integers_in("windows", windows, range(1, 2**63), "8,32,128")
    requests = runs.requests(
        arguments.Runs(
            attention=["softmax"], task=[task], budget=budget, seeds=seeds, device=device,
            precision=precision, set_=set_,
        )
    )  # fmt: skip
    plans = [plan for request in requests for plan in windowed(request, sizes)]
    runs.require_owners(requests, plans)
    plans += shuffled(requests, sizes)
    records = [record for record, _ in runs.execute(plans, store)]
    baselines.fit([record for record in records if not record.spec.task.block], store)
    failed = [f"{record.status}: {record.reason}" for record in records if record.status != "ok"]
    if failed:
        reasons = ", ".join(dict.fromkeys(failed))
        warnings.warn(f"{len(failed)} of {len(records)} runs failed ({reasons})", stacklevel=2)
    try:
        files = pages.locality_files(read(store)[0])
    except ValueError as error:
        raise UserError(f"no page is written: {error}; give another --store") from error
    write_pages(within(store, files))
    raise typer.Exit(1 if failed else 0)
