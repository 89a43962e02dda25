"""Texts and bars on a terminal, printed lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from zoo.registry import printable


class Output(Console):
    """A console whose errors of writing are left to the end of the command, which reports them."""

    def on_broken_pipe(self) -> None:
        """Go on; rich would end the process, with the run that it executes."""


def write(text: str, console: Console) -> None:
    """Print a text as it is, but for characters that the terminal would obey."""
    # A run does not fail because its output cannot be written; the command does, at its end.
    with suppress(OSError, UnicodeError):
        lines = "\n".join(map(printable, text.split("\n")))
        console.print(lines, markup=False, highlight=False, soft_wrap=True)


def write_line(text: str, console: Console) -> None:
    """Print a line where there are no bars."""
    if not console.is_terminal:
        write(text, console)


def summary(
    done: int, total: int, running: int, failed: int, others: int = 0, left: float | None = None
) -> str:
    """The state of a grid in one line.

    `done` runs have a final record, `others` are in processes of other commands; `left` are the
    seconds until the end, about, None where unknown.
    """
    counts = [f"{done} of {total} runs done", f"{running} running", f"{failed} failed"]
    counts += [f"{others} running elsewhere"] if others else []
    if left is not None:
        minutes = f"{left / 60:.0f} min" if left < 6000 else f"{left / 3600:.1f} h"
        counts.append(f"about {f'{left:.0f} s' if left < 100 else minutes} left")
    return ", ".join(counts)


def bars(console: Console, clock: Callable[[], float] = time.monotonic) -> Progress:
    """The bars of runs: a row each, with the remaining time of the part that it is at."""
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[status]}"),
        TimeElapsedColumn(Column(min_width=7)),
        TimeRemainingColumn(table_column=Column(min_width=7)),
        console=console, disable=not console.is_terminal, get_time=clock,
        # Two points of a long run may be an hour apart.
        speed_estimate_period=1e5,
    )  # fmt: skip


@contextmanager
def download(name: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show a download on stderr; yield a function that takes a file, its bytes, and all bytes."""
    console = Console(stderr=True)
    columns = (
        TextColumn("[bold]{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn()
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        row = bar.add_task(name, total=None)
        yield lambda file, done, total: bar.update(
            row, description=f"{name}: {file}", completed=done, total=total
        )
