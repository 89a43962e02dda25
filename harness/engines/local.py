"""The engine of this machine: one run after the other in this process, or several in workers."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import NamedTuple

import torch

from harness.engines import Resources
from harness.interrupts import ending, ignore_interrupts
from harness.jobs import Job, Pool, Result, take
from harness.records.spec import RunSpec
from harness.runner import ProgressCallback
from harness.worker import work

SECONDS_PER_WAIT = 0.2
"""Seconds to wait for the end of a job."""

Callback = Callable[[RunSpec], ProgressCallback]
"""Gives the callback of a run that begins in this process."""


def create(resources: Resources, store: Path, callback: Callback) -> Pool:
    """The engine of this machine."""
    workers, threads = resources.workers, resources.threads
    if workers > 1:
        share = threads or max(1, torch.get_num_threads() // workers)
        return Workers(workers, share, visible_gpus() if resources.device == "cuda" else ())
    torch.set_num_threads(threads or torch.get_num_threads())
    return Serial(callback, Workers(1, torch.get_num_threads()))


class Serial:
    """Computes each run when it is submitted, in this process unless it is isolated."""

    def __init__(self, callback: Callback, isolated: Pool) -> None:
        """Show the runs of this process by `callback`; `isolated` starts a process for others."""
        self.callback, self.isolated = callback, isolated
        self.ended: list[tuple[Job, Result]] = []

    def can_start(self) -> bool:
        return not self.ended and self.isolated.can_start()

    def submit(self, job: Job) -> None:
        if job.is_isolated:
            self.isolated.submit(job)
        else:
            self.ended.append((job, take(job, self.callback)))

    def finished(self) -> Sequence[tuple[Job, Result]]:
        ended, self.ended = self.ended, []
        return ended or self.isolated.finished()

    def close(self) -> None:
        self.isolated.close()


class Worker(NamedTuple):
    """A process that computes one job at a time, and this end of the pipe to it."""

    process: SpawnProcess
    connection: Connection
    gpu: str


class Workers:
    """Processes, each started for the first job that it gets.

    A process that ends before its job does is replaced by the next job, and so is the process of an
    isolated job.
    """

    def __init__(self, count: int, threads: int, gpus: Sequence[str] = ()) -> None:
        """Prepare; no process is started yet.

        Each has `threads` CPU threads. They share `gpus`, names for `CUDA_VISIBLE_DEVICES`.
        """
        self.threads = threads
        self.free_gpus = [gpus[i % len(gpus)] if gpus else "" for i in range(count)]
        self.idle: list[Worker] = []
        self.busy: dict[Connection, tuple[Worker, Job]] = {}

    def can_start(self) -> bool:
        return bool(self.idle or self.free_gpus)

    def submit(self, job: Job) -> None:
        worker = self.idle.pop() if self.idle else self._start()
        self.busy[worker.connection] = worker, job
        with suppress(OSError):  # the process has ended, which `finished` reports
            worker.connection.send((job.portable, self.threads))

    def finished(self) -> list[tuple[Job, Result]]:
        ended = []
        for connection in wait([*self.busy], SECONDS_PER_WAIT):
            worker, job = self.busy.pop(connection)  # type: ignore[arg-type]
            ended.append((job, self._result(worker, job)))
        return ended

    def close(self) -> None:
        # A second interrupt ends the processes at once.
        workers = [*self.idle, *(worker for worker, _ in self.busy.values())]
        try:
            for worker in workers:
                worker.process.terminate()
            for worker in workers:
                worker.process.join()
        finally:
            for worker in workers:
                worker.process.kill()
                worker.process.join()
                worker.connection.close()

    def _start(self) -> Worker:
        gpu = self.free_gpus.pop(0)
        ours, other = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=work, args=(other, self.threads, gpu), daemon=True
        )
        # Ctrl-C reaches all processes of the terminal: this one ends the others.
        with ignore_interrupts():
            process.start()
        other.close()
        return Worker(process, ours, gpu)

    def _result(self, worker: Worker, job: Job) -> Result:
        """The result of a worker that has sent one, or has ended."""
        result = None
        with suppress(EOFError, OSError):
            result = worker.connection.recv()
        if result is not None and not job.is_isolated:
            self.idle.append(worker)
            return result
        worker.connection.close()  # by which it ends
        worker.process.join()
        self.free_gpus.append(worker.gpu)
        return result or Result("died", ending(worker.process.exitcode or 0))


def visible_gpus() -> list[str]:
    """The GPUs of this process by their names for `CUDA_VISIBLE_DEVICES`."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return chosen.split(",")[:count] if chosen else [str(number) for number in range(count)]
