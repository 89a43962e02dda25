"""The state of a grid: bars on a terminal, printed lines elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress, TaskID

from harness.cli.progress import CellProgress, Estimate, columns, title, write, write_failure
from harness.records.locks import State
from harness.records.record import FINAL, Record
from harness.records.spec import RunSpec

if TYPE_CHECKING:
    from harness.engines.jobs import Result

SECONDS_PER_SUMMARY = 60.0
"""Seconds between two printed summaries of a grid that runs in other processes."""


def duration(seconds: float) -> str:
    """A time in the unit that fits: `40 s`, `5 min`, `3.2 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def summary(
    done: int, total: int, running: int, failed: int, others: int = 0, left: float | None = None
) -> str:
    """The state of a grid in one line.

    Args:
        done: cells with a final record.
        total: all cells.
        running: cells that run.
        failed: cells that failed.
        others: cells that processes of other commands run.
        left: seconds until the end, about; None where unknown.
    """
    parts = [f"{done} of {total} cells done", f"{running} running", f"{failed} failed"]
    parts += [f"{others} running elsewhere"] if others else []
    parts += [] if left is None else [f"about {duration(left)} left"]
    return ", ".join(parts)


class GridView:
    """Shows a grid; a `harness.grid.View` and a `harness.engines.jobs.CellView`."""

    def __init__(
        self,
        bar: Progress,
        errors: Console,
        name_of: Callable[[RunSpec], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Show the grid on `bar`, tracebacks on `errors`; `name_of` gives the name of a record."""
        self._bar, self._console, self._errors = bar, bar.console, errors
        self._name_of, self._clock = name_of, clock
        self._rows: dict[str, TaskID] = {}
        self._specs: dict[str, RunSpec] = {}
        self._first: dict[str, float] = {}
        self._estimates: dict[str, Estimate] = {}
        self._running: Mapping[str, State] = {}
        self._others: Mapping[str, State] = {}
        self._failed = self._done = self._before = self._total = 0
        self._overall: TaskID | None = None

    def begin(self, total: int, done: int) -> None:
        """See `harness.grid.View.begin`."""
        self._total, self._done, self._before = total, done, done
        self._start = self._printed = self._clock()
        if total > 1:
            self._overall = self._bar.add_task("grid", total=total, completed=done, status="")

    def started(self, spec: RunSpec) -> None:
        """See `harness.grid.View.started`."""
        self._specs[self._name_of(spec)] = spec

    def callback(self, spec: RunSpec) -> CellProgress:
        """See `harness.engines.jobs.CellView.callback`."""
        return CellProgress(spec, self._bar, self._errors, self._clock)

    def ended(self, record: Record, result: "Result") -> None:
        """See `harness.grid.View.ended`."""
        name = self._name_of(record.spec)
        self._done += record.status in FINAL
        self._failed += record.status not in FINAL
        self._running = {key: state for key, state in self._running.items() if key != name}
        if name in self._rows:
            self._bar.remove_task(self._rows.pop(name))
        if result.trace:
            write_failure(result.trace, title(record.spec), self._console, self._errors)
        if self._total > 1:
            self._print(f"{title(record.spec)}: {record.status}; {self._summary()}")
        self._show_overall()

    def refresh(self, running: Mapping[str, State], others: Mapping[str, State]) -> None:
        """See `harness.grid.View.refresh`."""
        for name, state in running.items():
            if name not in self._first:
                self._first[name] = state.step / state.steps
                self._row(name, state)
            elif name in self._rows:
                left = self._estimates[name].left(state.phase, state.step, state.steps)
                self._bar.update(
                    self._rows[name], completed=state.step, status=state.phase, left=left
                )
        self._running, self._others = running, others
        self._show_overall()
        if self._clock() > self._printed + SECONDS_PER_SUMMARY:
            self._printed = self._clock()
            self._print(self._summary())

    def _row(self, name: str, state: State) -> None:
        """Show a cell that another process runs."""
        text = title(self._specs[name])
        self._estimates[name] = Estimate(self._clock)
        self._rows[name] = self._bar.add_task(
            text, total=state.steps, completed=state.step, status=state.phase
        )
        self._print(f"{text}: process {state.pid} of {state.host}")

    def _show_overall(self) -> None:
        if self._overall is not None:
            left = self._seconds_left()
            self._bar.update(self._overall, completed=self._done, status=self._summary(), left=left)

    def _summary(self) -> str:
        return summary(
            self._done, self._total, len(self._running), self._failed, len(self._others),
            self._seconds_left(),
        )  # fmt: skip

    def _seconds_left(self) -> float | None:
        """From the work of this command so far; None before a cell has ended, and at the end."""
        parts = {name: state.step / state.steps for name, state in self._running.items()}
        ended = self._done - self._before + self._failed
        new = ended + sum(part - self._first.get(name, 0.0) for name, part in parts.items())
        left = self._total - self._done - self._failed - sum(parts.values())
        return (self._clock() - self._start) * left / new if ended and left > 0 else None

    def _print(self, text: str) -> None:
        """Print a line where there are no bars."""
        if not self._console.is_terminal:
            write(text, self._console)


@contextmanager
def grid(
    console: Console, errors: Console, name_of: Callable[[RunSpec], str]
) -> Iterator[GridView]:
    """Show a grid on `console`, and failures on `errors`; `name_of` gives the name of a record."""
    with Progress(*columns(), console=console, disable=not console.is_terminal) as bar:
        yield GridView(bar, errors, name_of)
