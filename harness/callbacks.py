"""Callbacks by which a run shows its progress."""

from typing import Protocol, runtime_checkable

from harness.records.outcome import Point


@runtime_checkable
class ProgressCallback(Protocol):
    """Called during a run."""

    def phase(self, name: str) -> None:
        """A part of the run begins."""

    def point(self, point: Point, steps: int) -> None:
        """The curve has a new point; the run has `steps` steps in all."""

    def failed(self, trace: str) -> None:
        """The run ended in an unexpected error, of which `trace` is the traceback."""


class NoProgress:
    """A `ProgressCallback` that shows nothing."""

    def phase(self, name: str) -> None:
        """See `ProgressCallback.phase`."""

    def point(self, point: Point, steps: int) -> None:
        """See `ProgressCallback.point`."""

    def failed(self, trace: str) -> None:
        """See `ProgressCallback.failed`."""
