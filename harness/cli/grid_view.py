"""The view of a grid of runs: bars on a terminal, printed lines elsewhere."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from harness.cli.console import summary, write, write_line

if TYPE_CHECKING:
    from harness.records.locks import State
    from harness.records.record import Point, Record
    from harness.records.spec import RunSpec

# Minimum seconds between two printed lines; lines with a score on dev are always printed.
SECONDS_PER_LINE = 10.0

# Seconds between two printed summaries of a grid that runs in other processes.
SECONDS_PER_SUMMARY = 60.0


def title(spec: "RunSpec") -> str:
    return f"{spec.attention} {spec.task.name} seed {spec.seed}"


def bars(console: Console, clock: Callable[[], float] = time.monotonic) -> Progress:
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


def point_text(point: "Point") -> str:
    losses = "".join(f" {name} {loss:.2g}" for name, loss in point.losses.items())
    return f"loss {point.loss:.3f}{losses}" + ("" if point.dev is None else f" dev {point.dev:.4g}")


def show_step(bar: Progress, row: TaskID, state: "State", status: str, *, begins: bool) -> None:
    # Where a part `begins`, its speed is that from here on.
    if not begins:
        bar.update(row, completed=state.step, status=status)
        return
    bar.reset(row, completed=state.step, total=state.steps, status=status)
    if state.step < state.steps:
        # The first sample of the speed.
        bar.advance(row, 0)


class GridView:
    def __init__(
        self, bar: Progress, errors: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bar, self._console, self._clock = bar, bar.console, clock
        # A live bar erases what another console writes to the same terminal.
        shared = bar.console.is_terminal and errors.is_terminal
        self._errors = bar.console if shared else errors
        self._rows: dict[str, TaskID] = {}
        self._first: dict[str, float] = {}
        self._running: dict[str, "State"] = {}
        self._failed = self._done = self._before = self._total = self._others = 0
        self._overall: TaskID | None = None
        self._start = self._summary_at = clock()
        self._line_at = 0.0

    def begin(self, total: int, done: int) -> None:
        self._total, self._done, self._before = total, done, done
        if total > 1:
            self._overall = self._bar.add_task("grid", total=total, completed=done, status="")

    def show(self, spec: "RunSpec", state: "State") -> None:
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

    def ended(self, record: "Record", trace: str) -> None:
        name, text = record.spec.file_name, title(record.spec)
        self._done += record.is_final
        self._failed += not record.is_final
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
        running, left = len(self._running), self._seconds_left()
        return summary(self._done, self._total, running, self._failed, self._others, left)

    def _line(self, state: "State", status: str, *, begins: bool) -> str:
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
        done = {name: state.step / state.steps for name, state in self._running.items()}
        ended = self._done - self._before + self._failed
        new = ended + sum(part - self._first.get(name, 0.0) for name, part in done.items())
        left = self._total - self._done - self._failed - sum(done.values())
        return (self._clock() - self._start) * left / new if ended and left > 0 else None
