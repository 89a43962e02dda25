"""Texts and bars on a terminal, printed lines elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from zoo.registry import printable


class Output(Console):
    # Errors of writing are left to the end of the command, which reports them.

    def on_broken_pipe(self) -> None:
        """Go on; rich would end the process, with the run that it executes."""


def write(text: str, console: Console) -> None:
    # A run does not fail because its output cannot be written; the command does, at its end.
    with suppress(OSError, UnicodeError):
        lines = "\n".join(map(printable, text.split("\n")))
        console.print(lines, markup=False, highlight=False, soft_wrap=True)


def write_line(text: str, console: Console) -> None:
    if not console.is_terminal:
        write(text, console)


def summary(
    done: int, total: int, running: int, failed: int, others: int = 0, left: float | None = None
) -> str:
    # `done` runs have a final record, `others` are in processes of other commands.
    counts = [f"{done} of {total} runs done", f"{running} running", f"{failed} failed"]
    counts += [f"{others} running elsewhere"] if others else []
    if left is not None:
        minutes = f"{left / 60:.0f} min" if left < 6000 else f"{left / 3600:.1f} h"
        counts.append(f"about {f'{left:.0f} s' if left < 100 else minutes} left")
    return ", ".join(counts)


@contextmanager
def counting(
    console: Console, name: str, count: ProgressColumn, *, lines: bool
) -> Iterator[Callable[[str, int, int], None]]:
    # With `lines` each part is a printed line where there is no terminal.
    columns = (TextColumn("[bold]{task.description}"), BarColumn(), count, TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        row = bar.add_task(name, total=None)

        def on_step(part: str, done: int, total: int) -> None:
            if lines:
                write_line(f"{name}: {part} ({done + 1} of {total})", console)
            bar.update(row, description=f"{name}: {part}", completed=done, total=total)

        yield on_step


def fitting(name: str) -> AbstractContextManager[Callable[..., None]]:
    return counting(Output(), name, MofNCompleteColumn(), lines=True)


def reading(store: Path) -> AbstractContextManager[Callable[..., None]]:
    return counting(Console(stderr=True), str(store), MofNCompleteColumn(), lines=False)


def download(name: str) -> AbstractContextManager[Callable[..., None]]:
    return counting(Console(stderr=True), name, DownloadColumn(), lines=False)
