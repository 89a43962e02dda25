"""`harness locality`: measure the range of attention that a task needs."""

from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.arguments import (
    BudgetOption,
    DeviceOption,
    PrecisionOption,
    SeedsOption,
    SetOption,
    StoreOption,
    names_in,
    require_owners,
    seeds_in,
    settings_of,
    windows_in,
)
from harness.cli.report import read
from harness.cli.run import device_fields, run_cells
from zoo.registry import UserError


def locality(
    task: Annotated[str, typer.Argument(help="TASK or TASK,TASK,...")],
    windows: Annotated[
        str, typer.Option(help="Window and block sizes in tokens, separated by commas.")
    ] = "8,32,128",
    budget: BudgetOption = "laptop",
    seeds: SeedsOption = "0",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    set_: SetOption = None,
    store: StoreOption = Path("runs"),
) -> None:
    """Measure accuracy against the window of attention, and with shuffled blocks of tokens."""
    from harness.locality import shuffled, windowed
    from harness.plan import Request
    from harness.records.files import write_all
    from reports import pages

    common, sizes = device_fields(device, precision), windows_in(windows)
    settings = settings_of(set_)
    requests = [
        Request(
            attention="softmax", task=name, budget=budget, seed=seed, settings=settings, **common
        )
        for name, seed in product(names_in([task]), seeds_in(seeds))
    ]
    plans = [plan for request in requests for plan in windowed(request, sizes)]
    require_owners(settings, plans)
    plans += shuffled(requests, sizes)
    records = [record for record, _ in run_cells(plans, store)]
    failed = [f"{one.status}: {one.reason}" for one in records if one.status != "ok"]
    if failed:
        reasons = ", ".join(dict.fromkeys(failed))
        typer.echo(f"warning: {len(failed)} of {len(records)} runs failed ({reasons})", err=True)
    try:
        for path in write_all(store, pages.locality_files(read(store)[0])):
            typer.echo(path)
    except (OSError, ValueError) as error:
        raise UserError(f"no page is written: {error}; give another --store") from error
    raise typer.Exit(1 if failed else 0)
