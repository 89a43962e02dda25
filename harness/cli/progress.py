"""Progress of runs, grids, fits and downloads: bars on a terminal, printed lines elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from operator import attrgetter
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
    from harness.jobs import Result
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


def write_failure(trace: str, title: str, console: Console, errors: Console) -> None:
    """Print the traceback of the run `title` on `errors`."""
    # A live bar erases what another console writes to the same terminal.
    shared = console.is_terminal and errors.is_terminal
    write(f"{title}: failed:\n{trace}", console if shared else errors)


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


class RunProgress:
    """Shows one run; a `harness.runner.ProgressCallback`."""

    def __init__(self, spec: RunSpec, bar: Progress, errors: Console) -> None:
        """Add a row for the run to `bar`; tracebacks go to `errors`."""
        self._title, self._bar, self._errors = title(spec), bar, errors
        self._row = bar.add_task(self._title, total=spec.train.steps, status="")
        self._begins, self._step, self._steps, self._printed = True, 0, spec.train.steps, 0.0

    def phase(self, name: str) -> None:
        self._begins = True
        show_step(self._bar, self._row, self._step, self._steps, name, begins=True)
        write_line(f"{self._title}: {name}", self._bar.console)

    def point(self, point: Point, steps: int) -> None:
        extra = "".join(f" {name} {loss:.2g}" for name, loss in point.losses.items())
        dev = "" if point.dev is None else f" dev {point.dev:.4g}"
        text = f"loss {point.loss:.3f}{extra}{dev}"
        show_step(self._bar, self._row, point.step, steps, text, begins=self._begins)
        self._begins, self._step = False, point.step
        if point.dev is not None or time.monotonic() > self._printed + SECONDS_PER_LINE:
            self._printed = time.monotonic()
            line = f"step {point.step}/{steps} {text} ({point.seconds:.0f} s)"
            write_line(f"{self._title}: {line}", self._bar.console)

    def failed(self, trace: str) -> None:
        write_failure(trace, self._title, self._bar.console, self._errors)


def show_step(
    bar: Progress, row: TaskID, step: int, steps: int, status: str, *, begins: bool
) -> None:
    """Show the step of a run; where a part `begins`, its speed is that from here on."""
    if not begins:
        bar.update(row, completed=step, total=steps, status=status)
        return
    bar.reset(row, completed=step, total=steps, status=status)
    if step < steps:
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
        self, bar: Progress, errors: Console, name_of: Callable[[RunSpec], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Show the grid on `bar`, tracebacks on `errors`; `name_of` gives the name of a record."""
        self._bar, self._console, self._errors = bar, bar.console, errors
        self._name_of, self._clock = name_of, clock
        self._rows: dict[str, TaskID] = {}
        self._specs: dict[str, RunSpec] = {}
        self._first: dict[str, float] = {}
        self._running: Mapping[str, State] = {}
        self._others = 0
        self._failed = self._done = self._before = self._total = 0
        self._overall: TaskID | None = None

    def begin(self, total: int, done: int) -> None:
        self._total, self._done, self._before = total, done, done
        self._start = self._printed = self._clock()
        if total > 1:
            self._overall = self._bar.add_task("grid", total=total, completed=done, status="")

    def started(self, spec: RunSpec) -> None:
        self._specs[self._name_of(spec)] = spec

    def callback(self, spec: RunSpec) -> RunProgress:
        """The callback of a run that begins in this process."""
        return RunProgress(spec, self._bar, self._errors)

    def ended(self, record: Record, result: "Result") -> None:
        name = self._name_of(record.spec)
        self._done += record.status in FINAL
        self._failed += record.status not in FINAL
        self._running = {key: state for key, state in self._running.items() if key != name}
        if name in self._rows:
            self._bar.remove_task(self._rows.pop(name))
        if result.trace:
            write_failure(result.trace, title(record.spec), self._console, self._errors)
        if self._total > 1:
            write_line(f"{title(record.spec)}: {record.status}; {self.summary()}", self._console)
        self._show_overall()

    def refresh(self, running: Mapping[str, State], others: int) -> None:
        for name, state in running.items():
            if name not in self._first:
                self._first[name] = state.step / state.steps
                text = title(self._specs[name])
                self._rows[name] = self._bar.add_task(text, total=state.steps, status=state.phase)
                write_line(f"{text}: process {state.pid} of {state.host}", self._console)
            if name in self._rows:
                before, row = self._running.get(name), self._rows[name]
                begins = before is None or before.phase != state.phase
                show_step(self._bar, row, state.step, state.steps, state.phase, begins=begins)
        self._running, self._others = running, others
        self._show_overall()
        if self._clock() > self._printed + SECONDS_PER_SUMMARY:
            self._printed = self._clock()
            write_line(self.summary(), self._console)

    def summary(self) -> str:
        """The state of the grid in one line."""
        running, left = len(self._running), self._seconds_left()
        return summary(self._done, self._total, running, self._failed, self._others, left)

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
    """Show work of several parts; yield a function of a part, what is done before it, and of all.

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
    """How the options make runs, with their progress on the terminal."""
    from harness.runs import Execution

    return Execution(
        store=options.store, resources=options.resources(), cost=options.cost,
        rerun=options.rerun, keep_outdated=options.keep_outdated,
        keep_checkpoints=options.keep_checkpoints, shown=shown(),
    )  # fmt: skip


def shown() -> "Shown":
    """What a command shows of its runs: bars, lines, the score on dev of each trial, costs."""
    from harness.cli.cost import show
    from harness.runs import Shown

    return Shown(line=typer.echo, trials=show_trials, grid=_grid, fitting=fitting, cost=show)


@contextmanager
def _grid() -> Iterator[GridView]:
    with bars(Output()) as bar:
        yield GridView(bar, Output(stderr=True), attrgetter("file_name"))


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
