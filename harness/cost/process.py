"""A measurement in a separate process, so that what it allocates, caches or breaks ends with it."""

import multiprocessing
import resource
import signal
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import NamedTuple

import psutil
import torch

from harness.cost.cell import measure_cell
from harness.data import is_out_of_memory
from harness.environment import keep_freed_memory
from harness.interrupts import ending
from harness.records.cost import CostSpec, CostStatus, Limits, Measured
from zoo.registry import in_one_line

PRELOADED = (__name__, "torch._dynamo")
"""Modules that every measurement needs; the second, for counting FLOPs, takes seconds to import."""

SHARE = 0.9
"""Share of the available memory for a measurement on a CPU: with more, others would end."""


class Outcome(NamedTuple):
    """How a measurement ended, why in one line, and what was measured."""

    status: CostStatus
    reason: str
    measured: Measured | None


def measure_in_process(
    spec: CostSpec,
    limits: Limits,
    *,
    budget: float,
    timeout: float,
    measure: Callable[[CostSpec, Limits, float, float], Measured] = measure_cell,
) -> Outcome:
    """Measure in a new process, which is killed after `timeout` seconds.

    Args:
        spec: what is measured.
        limits: of the device.
        budget: seconds of sampling, about.
        timeout: seconds after which the measurement is given up.
        measure: does the work in the new process; a function of a module.
    """
    context = multiprocessing.get_context("forkserver")
    # The server imports them once, and each process is a copy of it.
    context.set_forkserver_preload([*PRELOADED])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=_measure,
        args=(sender, partial(measure, spec, limits, budget, timeout), spec.device, spec.threads),
        daemon=True,
    )
    process.start()
    sender.close()
    try:
        if not receiver.poll(timeout):
            return Outcome("timeout", f"it took more than {timeout:g} s", None)
        return receiver.recv()
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGKILL:
            reason = "the system ended it, probably for its memory"
            return Outcome("out_of_memory", reason, None)
        return Outcome("crashed", ending(process.exitcode or 0), None)
    finally:
        process.kill()
        process.join()
        receiver.close()


def _measure(
    sender: Connection, measure: Callable[[], Measured], device: str, threads: int
) -> None:
    # Ctrl-C reaches the whole group of processes: the parent ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    keep_freed_memory()
    if device == "cpu":
        _limit_memory()
    try:
        outcome = Outcome("ok", "", measure())
    except BaseException as error:
        # SystemExit as well: a variant must not end the process without a reason.
        out = is_out_of_memory(error)
        if not out:
            traceback.print_exc()
        outcome = Outcome("out_of_memory" if out else "failed", in_one_line(error), None)
    sender.send(outcome)


def _limit_memory() -> None:
    """Make allocations fail beyond `SHARE` of the memory that is available now."""
    process = psutil.Process()
    available = SHARE * psutil.virtual_memory().available
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (int(process.memory_info().vms + available), hard))
