"""`harness reproduce`: a published table or figure, measured here, beside the published numbers."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from harness.cli import arguments, reproduced
from zoo.registry import UserError, unknown

PAPERS = ("primal",)
"""Chen et al. 2023, arXiv 2305.19798."""

ARENA = "listops,text,retrieval,image,pathfinder"

SERIES = (
    "uea-ethanol-concentration,uea-face-detection,uea-handwriting,uea-heartbeat,"
    "uea-japanese-vowels,uea-pems-sf,uea-self-regulation-scp1,uea-self-regulation-scp2,"
    "uea-spoken-arabic-digits,uea-uwave-gesture-library"
)


class Table(NamedTuple):
    """A table or figure of the paper.

    Attributes:
        reproduce: measures and writes it, and returns the exit code.
        rows: its variants by the names that they have here; softmax is the published Transformer.
        tasks: its columns; empty for the data sets of D4RL.
        options: what it accepts of the options that not every table has.
    """

    reproduce: Callable[["reproduced.Options"], int]
    rows: str
    tasks: str
    options: frozenset[str]


RUNS = frozenset({"seeds", "workers", "threads"})

TABLES: Mapping[str, Table] = {
    "1": Table(
        reproduced.accuracies,
        "softmax,linear,reformer,longformer,performer,yoso,cosformer,soft,flowformer,primal,"
        "softmax+primal",
        SERIES,
        RUNS,
    ),
    "2": Table(
        reproduced.accuracies,
        "softmax,reformer,performer,linformer,nystrom,longformer,yoso,primal,softmax+primal",
        ARENA,
        RUNS,
    ),
    "3": Table(
        reproduced.costs,
        "softmax,nystrom,linformer,performer,reformer,softmax+primal,primal",
        ARENA,
        frozenset({"seconds", "timeout"}),
    ),
    "4": Table(
        reproduced.returns,
        "softmax,linear,performer,cosformer,softmax+primal",
        "",
        RUNS | {"data"},
    ),
    "figure": Table(reproduced.figure, "softmax,softmax+primal,primal", "image", RUNS),
}
"""By number: accuracy on time series and on the Long Range Arena, costs there, returns, spectra."""


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
        str | None, typer.Option(help="Seeds, separated by commas; 0. [not of table 3]")
    ] = None,
    device: arguments.DeviceOption = "auto",
    precision: arguments.PrecisionOption = "auto",
    store: arguments.StoreOption = Path("runs"),
    workers: Annotated[
        int | None, typer.Option(min=0, help="Cells at once; 1. [not of table 3]")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=0, help="CPU threads of a cell; a worker's share. [not of table 3]"),
    ] = None,
    data_: Annotated[
        Path | None,
        typer.Option("--data", parser=arguments.path, help="Folder of files of D4RL. [table 4]"),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Seconds of sampling for a cell; 3. [table 3]")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=1, max=10**6, help="Seconds of a cell, at most; 600. [table 3]"),
    ] = None,
    rerun: Annotated[bool, typer.Option("--rerun", help="Repeat finished cells.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per row.")] = False,
) -> None:
    """Reproduce a table or figure of a paper, as far as its data are here.

    Finished cells of the store are not repeated. Tables 1, 2 and 4 are runs of `harness run`; the
    page says which published numbers are within the interval, and which data are missing. Cells of
    table 3 are those of `harness cost --level step`. Exit 1 if a cell failed.
    """
    if paper not in PAPERS:
        raise UserError(unknown("paper", paper, PAPERS))
    if table not in TABLES:
        raise UserError(unknown("table", table, TABLES))
    chosen = TABLES[table]
    given: dict[str, Any] = {
        "seeds": seeds, "workers": workers, "threads": threads, "seconds": seconds,
        "timeout": timeout, "data": data_,
    }  # fmt: skip
    given = {name: value for name, value in given.items() if value is not None}
    if extra := given.keys() - chosen.options:
        own = ", ".join(f"--{name}" for name in sorted(chosen.options))
        raise UserError(f"--{min(extra)} is not of {_named(table)}, which has {own}; leave it out")
    wanted = reproduced.Options(
        table=table,
        attentions=_names(attention, chosen.rows),
        tasks=_names([task] if task else None, chosen.tasks) if task or chosen.tasks else (),
        budget=budget,
        device=device,
        precision=precision,
        store=store,
        rerun=rerun,
        as_json=as_json,
        **given,
    )
    raise typer.Exit(chosen.reproduce(wanted))


def _names(given: Sequence[str] | None, default: str) -> list[str]:
    return arguments.names_in(given or [default])


def _named(table: str) -> str:
    return f"table {table}" if table.isdigit() else f"the {table}"
