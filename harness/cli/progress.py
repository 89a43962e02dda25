"""Progress of runs, grids, fits and downloads: bars on a terminal, printed lines elsewhere."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from harness.records.locks import State
from harness.records.record import FINAL, Point, Record
from harness.records.spec import RunSpec
from zoo.registry import printable

if TYPE_CHECKING:
    from harness.cli.run import RunOptions
    from harness.runs import Execution, Shown

SECONDS_PER_LINE = 10.0
"""Minimum seconds between two printed lines; lines with a score on dev are always printed."""

SECONDS_PER_SUMMARY = 60.0
"""Seconds between two printed summaries of a grid that runs in other processes."""


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


def title(spec: RunSpec) -> str:
    """The name of a run in progress bars and lines."""
    return f"{spec.attention} {spec.task.name} seed {spec.seed}"


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


def point_text(point: Point) -> str:
    """The losses of a point, and its score on dev, if it has one."""
    losses = "".join(f" {name} {loss:.2g}" for name, loss in point.losses.items())
    return f"loss {point.loss:.3f}{losses}" + ("" if point.dev is None else f" dev {point.dev:.4g}")


def show_step(bar: Progress, row: TaskID, state: State, status: str, *, begins: bool) -> None:
    """Show the step of a run; where a part `begins`, its speed is that from here on."""
    if not begins:
        bar.update(row, completed=state.step, status=status)
        return
    bar.reset(row, completed=state.step, total=state.steps, status=status)
    if state.step < state.steps:
        # The first sample of the speed.
        bar.advance(row, 0)


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


class GridView:
    """Shows a grid; a `harness.grid.View`."""

    def __init__(
        self, bar: Progress, errors: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Show the grid on `bar`, tracebacks on `errors`."""
        self._bar, self._console, self._clock = bar, bar.console, clock
        # A live bar erases what another console writes to the same terminal.
        shared = bar.console.is_terminal and errors.is_terminal
        self._errors = bar.console if shared else errors
        self._rows: dict[str, TaskID] = {}
        self._first: dict[str, float] = {}
        self._running: dict[str, State] = {}
        self._failed = self._done = self._before = self._total = self._others = 0
        self._overall: TaskID | None = None
        self._start = self._summary_at = clock()
        self._line_at = 0.0

    def begin(self, total: int, done: int) -> None:
        self._total, self._done, self._before = total, done, done
        if total > 1:
            self._overall = self._bar.add_task("grid", total=total, completed=done, status="")

    def show(self, spec: RunSpec, state: State) -> None:
        name, text = spec.file_name, title(spec)
        if name not in self._rows:
            self._first[name] = state.step / state.steps
            self._rows[name] = self._bar.add_task(text, total=state.steps, status=state.phase)
            if not state.is_of_this_process:
                write_line(f"{text}: process {state.pid} of {state.host}", self._console)
        before, self._running[name] = self._running.get(name), state
        begins = before is None or before.phase != state.phase
        status = state.phase if begins or not state.point else point_text(state.point)
        show_step(self._bar, self._rows[name], state, status, begins=begins)
        if state.is_of_this_process and (line := self._line(state, status, begins=begins)):
            write_line(f"{text}: {line}", self._console)

    def ended(self, record: Record, trace: str) -> None:
        name, text = record.spec.file_name, title(record.spec)
        self._done += record.status in FINAL
        self._failed += record.status not in FINAL
        self._running.pop(name, None)
        if name in self._rows:
            self._bar.remove_task(self._rows.pop(name))
        if trace:
            write(f"{text}: failed:\n{trace}", self._errors)
        if self._total > 1:
            write_line(f"{text}: {record.status}; {self.summary()}", self._console)
        self._show_overall()

    def refresh(self, others: int) -> None:
        self._others = others
        self._show_overall()
        if self._clock() > self._summary_at + SECONDS_PER_SUMMARY:
            self._summary_at = self._clock()
            write_line(self.summary(), self._console)

    def summary(self) -> str:
        """The state of the grid in one line."""
        running, left = len(self._running), self._seconds_left()
        return summary(self._done, self._total, running, self._failed, self._others, left)

    def _line(self, state: State, status: str, *, begins: bool) -> str:
        """The line that is printed of a run of this process; empty where none is due."""
        if begins or state.point is None:
            return status
        if state.point.dev is None and self._clock() < self._line_at:
            return ""
        self._line_at = self._clock() + SECONDS_PER_LINE
        return f"step {state.step}/{state.steps} {status} ({state.point.seconds:.0f} s)"

    def _show_overall(self) -> None:
        if self._overall is not None:
            self._bar.update(self._overall, completed=self._done, status=self.summary())

    def _seconds_left(self) -> float | None:
        """Estimate from the work of this command; None before a run has ended, and at the end."""
        done = {name: state.step / state.steps for name, state in self._running.items()}
        ended = self._done - self._before + self._failed
        new = ended + sum(part - self._first.get(name, 0.0) for name, part in done.items())
        left = self._total - self._done - self._failed - sum(done.values())
        return (self._clock() - self._start) * left / new if ended and left > 0 else None


@contextmanager
def counting(
    console: Console, name: str, count: ProgressColumn, *, lines: bool
) -> Iterator[Callable[[str, int, int], None]]:
    """Show work of several parts; yield a function that shows a part, its number, and their count.

    With `lines` each is a printed line where there is no terminal.
    """
    columns = (TextColumn("[bold]{task.description}"), BarColumn(), count, TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        row = bar.add_task(name, total=None)

        def on_step(part: str, done: int, total: int) -> None:
            if lines:
                write_line(f"{name}: {part} ({done + 1} of {total})", console)
            bar.update(row, description=f"{name}: {part}", completed=done, total=total)

        yield on_step


def fitting(name: str) -> AbstractContextManager[Callable[..., None]]:
    """Show what is fitted or measured; see `counting`."""
    return counting(Output(), name, MofNCompleteColumn(), lines=True)


def download(name: str) -> AbstractContextManager[Callable[..., None]]:
    """Show a download in bytes on stderr; see `counting`."""
    return counting(Console(stderr=True), name, DownloadColumn(), lines=False)


def execution(options: "RunOptions") -> "Execution":
    """The execution that the options describe, with progress on the terminal."""
    from harness.runs import Execution

    return Execution(
        store=options.store, resources=options.resources(), cost=options.cost,
        rerun=options.rerun, keep_outdated=options.keep_outdated,
        keep_checkpoints=options.keep_checkpoints, shown=shown(),
    )  # fmt: skip


def shown() -> "Shown":
    """The displays of runs: bars, lines, the score on dev of each trial, costs."""
    from harness.cli.cost import show
    from harness.runs import Shown

    return Shown(line=typer.echo, trials=show_trials, grid=_grid, fitting=fitting, cost=show)


@contextmanager
def _grid() -> Iterator[GridView]:
    with bars(Output()) as bar:
        yield GridView(bar, Output(stderr=True))


def show_trials(records: Sequence[Record], chosen: Record | None) -> None:
    """Print the score on dev at each point of a row, and the point that is chosen."""
    from harness.records.frame import of_records
    from reports.shown import failure

    spec = records[0].spec
    typer.echo(f"{spec.attention} on {spec.task.key}, on dev:")
    for record, line in zip(records, of_records(records).to_dict("records"), strict=True):
        grid_point = ", ".join(f"{path}={value}" for path, value in record.spec.values.items())
        result = record.selection.sentence(record.final.dev) if record.final else failure(line)
        typer.echo(f"  {grid_point}: {result}{' (chosen)' if record is chosen else ''}")
