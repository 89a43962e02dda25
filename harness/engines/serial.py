"""The engine that runs one cell after the other, those of plug-ins in a process of their own."""

from collections.abc import Sequence

from harness.engines.jobs import CellView, Job, Result, take
from harness.engines.local import Workers


class Serial:
    """An engine that runs each job when it is submitted, in this process unless it is isolated."""

    def __init__(self, view: CellView, isolated: Workers) -> None:
        """Show the runs of this process in `view`; `isolated` starts a process for each other."""
        self.view, self.isolated = view, isolated
        self.ended: list[tuple[Job, Result]] = []

    def can_start(self) -> bool:
        """See `Pool.can_start`."""
        return not self.ended and self.isolated.can_start()

    def submit(self, job: Job) -> None:
        """See `Pool.submit`."""
        if job.is_isolated:
            self.isolated.submit(job)
            return
        new = take(job, self.view)
        self.ended.append((job, Result("busy") if new is None else Result("done", new=new)))

    def finished(self) -> Sequence[tuple[Job, Result]]:
        """See `Pool.finished`."""
        ended, self.ended = self.ended, []
        return ended or self.isolated.finished()

    def close(self) -> None:
        """See `Pool.close`."""
        self.isolated.close()
