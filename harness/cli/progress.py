"""Progress of runs and downloads: a bar on a terminal, printed lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from math import ceil

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from harness.records.outcome import Point
from harness.records.spec import RunSpec
from zoo.registry import printable


class Output(Console):
    """A console whose errors of writing are left to the end of the command, which reports them."""

    def on_broken_pipe(self) -> None:
        """Go on; rich would end the process, with the run that it executes."""


SECONDS_PER_LINE = 10.0
"""Minimum seconds between two printed lines; lines with a score on dev are always printed."""


class Estimate:
    """The remaining time of a stage, from the steps of that stage alone."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Measure time by `clock`; nothing is known yet."""
        self._clock, self._stage = clock, ""
        self._first: tuple[float, int] | None = None

    def left(self, stage: str, step: int, steps: int) -> float | None:
        """Seconds until `steps`, if a step was seen since the first look at `stage`, else None."""
        now = self._clock()
        if stage != self._stage:
            self._stage, self._first = stage, None
        if self._first is None:
            self._first = now, step
        start, before = self._first
        return (steps - step) * (now - start) / (step - before) if step > before else None


class Remaining(ProgressColumn):
    """The remaining time of a row, where it is known: its field `left`, in seconds."""

    def render(self, task: Task) -> Text:
        """See `ProgressColumn.render`."""
        left = task.fields.get("left")
        return Text("-:--:--" if left is None else str(timedelta(seconds=ceil(left))), "cyan")


class CellProgress:
    """Shows one cell; a `harness.callbacks.ProgressCallback`."""

    def __init__(
        self, spec: RunSpec, bar: Progress, errors: Console, clock: Callable[[], float]
    ) -> None:
        """Add a row for the cell to `bar`; tracebacks go to `errors`."""
        self._estimate, self._phase = Estimate(clock), ""
        self._title = title(spec)
        self._bar, self._console, self._errors = bar, bar.console, errors
        self._row = bar.add_task(self._title, total=spec.train.steps, status="")
        self._printed = 0.0

    def phase(self, name: str) -> None:
        """See `ProgressCallback.phase`."""
        self._phase = name
        self._bar.update(self._row, status=name, left=None)
        if not self._console.is_terminal:
            self._print(name, self._console)

    def point(self, point: Point, steps: int) -> None:
        """See `ProgressCallback.point`."""
        extra = "".join(f" {name} {loss:.2g}" for name, loss in point.losses.items())
        dev = "" if point.dev is None else f" dev {point.dev:.4g}"
        text = f"loss {point.loss:.3f}{extra}{dev}"
        left = self._estimate.left(self._phase, point.step, steps)
        self._bar.update(self._row, completed=point.step, status=text, left=left)
        due = point.evaluated or time.monotonic() > self._printed + SECONDS_PER_LINE
        if due and not self._console.is_terminal:
            self._printed = time.monotonic()
            self._print(f"step {point.step}/{steps} {text} ({point.seconds:.0f} s)", self._console)

    def failed(self, trace: str) -> None:
        """See `ProgressCallback.failed`."""
        write_failure(trace, self._title, self._console, self._errors)

    def _print(self, text: str, console: Console) -> None:
        write(f"{self._title}: {text}", console)


def write_failure(trace: str, title: str, console: Console, errors: Console) -> None:
    """Print the traceback of the run `title` on `errors`."""
    # A live bar erases what another console writes to the same terminal.
    shared = console.is_terminal and errors.is_terminal
    write(f"{title}: failed:\n{trace}", console if shared else errors)


def write(text: str, console: Console) -> None:
    """Print a text as it is, but for characters that the terminal would obey."""
    # A run does not fail because its output cannot be written; the command does, at its end.
    with suppress(OSError, UnicodeError):
        console.print(
            "\n".join(map(printable, text.split("\n"))),
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def title(spec: RunSpec) -> str:
    """The name of a run in progress bars and lines."""
    return f"{spec.attention} {spec.task.name} seed {spec.seed}"


def columns() -> tuple[ProgressColumn, ...]:
    """What is shown of a run on a terminal."""
    return (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[status]}"),
        TimeElapsedColumn(),
        Remaining(),
    )


@contextmanager
def fitting(console: Console, name: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show what is fitted; yield a function of a step's name, the steps before it, and of all."""
    columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal
    ) as bar:
        row: TaskID | None = None

        def on_step(step: str, done: int, steps: int) -> None:
            nonlocal row
            if not console.is_terminal:
                write(f"{name}: {step} ({done + 1} of {steps})", console)
                return
            row = bar.add_task(name, total=steps) if row is None else row
            bar.update(row, completed=done, description=f"{name}: {step}")

        yield on_step


@contextmanager
def download(console: Console, name: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show a download; yield a function of the file's name, the bytes so far, and all bytes."""
    columns = (*Progress.get_default_columns(), DownloadColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        row = bar.add_task(name, total=None)
        yield lambda file, done, size: bar.update(row, description=file, completed=done, total=size)
