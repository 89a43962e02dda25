"""`harness reproduce`: a published table or figure, measured here, beside the published numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli import arguments
from harness.cli.paper_tables import TABLES, Options, Table
from harness.cli.process import Answer
from zoo.registry import UserError, unknown

PAPERS = ("primal",)
"""Chen et al. 2023, arXiv 2305.19798."""


def reproduce(
    paper: Annotated[str, typer.Argument(help="primal: Chen et al. 2023, arXiv 2305.19798.")],
    table: Annotated[
        str,
        typer.Option(
            help="1, accuracy on UEA time series; 2, accuracy on the Long Range Arena; 3, cost "
            "there; 4, returns on D4RL; figure, the spectra of attention matrices."
        ),
    ] = "3",
    attention: Annotated[
        list[str] | None,
        typer.Option("--attention", "-a", help="Rows: A, or A,B,...; repeatable. [default: all]"),
    ] = None,
    task: Annotated[
        str, typer.Option(help="Columns: TASK, or TASK,TASK,... [default: all; figure: image]")
    ] = "",
    budget: Annotated[str, typer.Option(help="Recipe of the runs.")] = "paper",
    seeds: Annotated[
        str | None, typer.Option(help="Seeds and ranges: 0-2,7. [default: 0; not table 3]")
    ] = None,
    device: arguments.DeviceOption = "auto",
    precision: arguments.PrecisionOption = "auto",
    store: arguments.StoreOption = Path("runs"),
    workers: Annotated[
        int | None, typer.Option(min=0, help="Cells at once. [default: 1; not table 3]")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=0, help="CPU threads of a cell. [default: a worker's share; not table 3]"),
    ] = None,
    data_: Annotated[
        Path | None,
        typer.Option("--data", parser=arguments.path, help="Folder of files of D4RL. [table 4]"),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds of sampling for a cell. [default: 3; table 3]"),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=1, max=10**6, help="Seconds of a cell, at most. [default: 600; table 3]"),
    ] = None,
    rerun: Annotated[bool, typer.Option("--rerun", help="Repeat finished cells.")] = False,
    as_json: arguments.JsonOption = False,
) -> Answer:
    """Reproduce a table or figure of a paper, as far as its data are present.

    Finished cells of the store are not repeated. Tables 1, 2 and 4 are runs of `harness run`; the
    page says which published numbers are within the interval, and which data are missing. Cells of
    table 3 are those of `harness cost --level step`. Exit 1 if a cell failed.
    """
    if paper not in PAPERS:
        raise UserError(unknown("paper", paper, PAPERS))
    if table not in TABLES:
        raise UserError(unknown("table", table, TABLES))
    chosen = TABLES[table]
    given = _options_of(
        table, chosen, seeds=seeds, workers=workers, threads=threads, seconds=seconds,
        timeout=timeout, data=data_,
    )  # fmt: skip
    options = Options(
        table=table,
        attentions=arguments.names_in(attention or [chosen.rows]),
        tasks=_tasks(table, chosen, task),
        budget=budget,
        device=device,
        precision=precision,
        store=store,
        rerun=rerun,
        as_json=as_json,
        **given,
    )
    return chosen.reproduce(options)


def _options_of(table: str, chosen: Table, **options: Any) -> dict[str, Any]:
    """The options that are given; UserError where the table does not have one of them."""
    given = {name: value for name, value in options.items() if value is not None}
    if extra := given.keys() - chosen.options:
        own = ", ".join(f"--{name}" for name in sorted(chosen.options))
        raise UserError(
            f"--{min(extra)} is not an option of {_named(table)}, which has {own}; leave it out"
        )
    return given


def _tasks(table: str, chosen: Table, given: str) -> Sequence[str]:
    """The columns; UserError where the table does not have one of them."""
    names = arguments.names_in([given or chosen.tasks]) if given or chosen.tasks else []
    # The data sets of table 4 are checked with its files.
    columns = chosen.tasks.split(",") if chosen.tasks and not chosen.any_task else names
    if other := [name for name in names if name not in columns]:
        raise UserError(unknown(f"column of {_named(table)}", other[0], columns))
    return names


def _named(table: str) -> str:
    return f"table {table}" if table.isdigit() else f"the {table}"
