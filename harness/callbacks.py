"""Callbacks by which a run shows its progress."""

import warnings
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from harness.records.locks import Lock
from harness.records.record import Point
from zoo.registry import in_one_line


@runtime_checkable
class ProgressCallback(Protocol):
    """Called during a run."""

    def phase(self, name: str) -> None:
        """A part of the run begins."""

    def point(self, point: Point, steps: int) -> None:
        """The curve has a new point; the run has `steps` steps in all."""

    def failed(self, trace: str) -> None:
        """The run ended in an unexpected error; `trace` is its traceback."""


class NoProgress(ProgressCallback):
    """Shows nothing."""


class Reported:
    """A `ProgressCallback` that passes all calls on, and writes the state of the run as well.

    The run does not depend on the other callback: an error of it is a warning, after which no call
    is passed on.
    """

    def __init__(self, callback: ProgressCallback, lock: Lock) -> None:
        """Pass on to `callback`, and report the state to `lock`."""
        self.callback, self.lock = callback, lock

    def phase(self, name: str) -> None:
        """See `ProgressCallback.phase`."""
        self.lock.report(phase=name)
        self._show(lambda: self.callback.phase(name))

    def point(self, point: Point, steps: int) -> None:
        """See `ProgressCallback.point`."""
        self.lock.report(step=point.step)
        self._show(lambda: self.callback.point(point, steps))

    def failed(self, trace: str) -> None:
        """See `ProgressCallback.failed`."""
        self._show(lambda: self.callback.failed(trace))

    def _show(self, call: Callable[[], None]) -> None:
        try:
            call()
        except (Exception, SystemExit) as error:
            self.callback = NoProgress()
            warnings.warn(f"progress is not shown ({in_one_line(error)})", stacklevel=2)
