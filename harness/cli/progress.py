"""How a run is shown: a live bar on a terminal, a plain line now and then elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from harness.records.record import Point
from harness.records.spec import RunSpec

LINE_EVERY_SECONDS = 10.0


class Screen:
    """Shows one cell after the other; a context, so that the terminal is left tidy."""

    def __init__(self, console: Console, errors: Console) -> None:
        """Show on `console`, and failures on `errors`."""
        self.console, self.errors = console, errors
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[reading]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "Screen":
        """Begin to show."""
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was."""
        self._bar.stop()

    def watch(self, spec: RunSpec) -> "CellView":
        """A view of one cell."""
        title = f"{spec.attention} {spec.task.name} seed {spec.seed}"
        return CellView(self.console, self.errors, self._bar, title, spec.train.steps)


class CellView:
    """Shows one cell; a `harness.run.ProgressCallback`."""

    def __init__(
        self, console: Console, errors: Console, bar: Progress, title: str, steps: int
    ) -> None:
        """Show the cell called `title`, which has `steps` steps."""
        self._console, self._errors, self._bar, self._title = console, errors, bar, title
        self._task = bar.add_task(title, total=steps, reading="")
        self._told = 0.0

    def phase(self, name: str) -> None:
        """A part of the run begins."""
        self._bar.update(self._task, reading=name)
        if not self._console.is_terminal:
            self._say(name, self._console)

    def point(self, point: Point, steps: int) -> None:
        """The losses were read."""
        extra = "".join(f" {name} {loss:.2g}" for name, loss in point.losses.items())
        accuracy = "" if point.dev_accuracy is None else f" dev {100 * point.dev_accuracy:.1f} %"
        text = f"loss {point.loss:.3f}{extra}{accuracy}"
        self._bar.update(self._task, completed=point.step, reading=text)
        due = time.monotonic() - self._told > LINE_EVERY_SECONDS or point.dev_accuracy is not None
        if due and not self._console.is_terminal:
            self._told = time.monotonic()
            self._say(f"step {point.step}/{steps} {text} ({point.seconds:.0f} s)", self._console)

    def failed(self, trace: str) -> None:
        """The run ended in an error that nobody foresaw."""
        # A live bar erases what another console writes to its terminal.
        shared = self._console.is_terminal and self._errors.is_terminal
        self._say(f"failed:\n{trace}", self._console if shared else self._errors)

    def _say(self, text: str, console: Console) -> None:
        console.print(f"{self._title}: {text}", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def download(console: Console, name: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for a file that is on its way, where there is a terminal; yields what moves it.

    That takes the file's name, the bytes that are there, and the bytes in all.
    """
    columns = (*Progress.get_default_columns(), DownloadColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        row = bar.add_task(name, total=None)
        yield lambda file, done, size: bar.update(row, description=file, completed=done, total=size)
