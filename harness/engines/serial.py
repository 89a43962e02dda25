"""The engine that runs one cell after the other in this process."""

from collections.abc import Sequence

from harness.engines.jobs import CellView, Job, Result, take


class Serial:
    """An engine that runs each job in this process, when it is submitted."""

    def __init__(self, view: CellView) -> None:
        """Show the runs in `view`."""
        self.view = view
        self.ended: list[tuple[Job, Result]] = []

    def can_start(self) -> bool:
        """See `Pool.can_start`."""
        return not self.ended

    def submit(self, job: Job) -> None:
        """See `Pool.submit`."""
        new = take(job, self.view)
        self.ended.append((job, Result("busy") if new is None else Result("done", new=new)))

    def finished(self) -> Sequence[tuple[Job, Result]]:
        """See `Pool.finished`."""
        ended, self.ended = self.ended, []
        return ended

    def close(self) -> None:
        """See `Pool.close`."""
