"""`harness curves`: draw the training of the runs of a store."""

from pathlib import Path
from typing import Annotated

import typer

from harness.cli import arguments
from harness.cli.report import read, within, write_pages
from zoo.registry import UserError, printable


def curves(
    task: Annotated[
        str, typer.Option("--task", "-t", help="TASK or TASK,TASK,...; all if none is given.")
    ] = "",
    attention: Annotated[
        str, typer.Option("--attention", "-a", help="A, A+B, or A,A+B,...; all if none is given.")
    ] = "",
    store: arguments.StoreOption = Path("runs"),
    out: arguments.OutOption = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(parser=arguments.path, help="Folder for event files of TensorBoard."),
    ] = None,
) -> None:
    """Draw loss and accuracy on dev against steps and seconds, with a band over the seeds.

    Writes curves.png, curves.svg and curves.csv.
    """
    from harness.records import frame
    from harness.records.files import require_writable
    from reports import curves as pages

    tasks, attentions = (set(arguments.names_in([t])) if t else set() for t in (task, attention))
    records = [
        run
        for run in read(store)[0]
        if (not tasks or run.spec.task.name in tasks)
        and (not attentions or run.spec.attention in attentions)
    ]
    if not any(run.curve for run in records):
        raise UserError(
            f"store {str(store)!r} has no run with a curve and these names; make one with: "
            "harness run"
        )
    if tensorboard:
        from harness.events import write_events

        for folder in write_events(records, tensorboard):
            typer.echo(printable(str(folder)))
    folder = out or store
    require_writable(folder, str(folder), "give another --out")
    write_pages(within(folder, pages.files(frame.of_records(records), frame.of_curves(records))))
