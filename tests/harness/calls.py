"""What processes of an engine call: they import this file, and nothing else of the tests."""

import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

import torch

from harness.records.cost import CostSpec, Limits, Measured


def start_a_process() -> int | None:
    process = multiprocessing.get_context("spawn").Process(target=os.getpid)
    process.start()
    process.join()
    return process.exitcode


def fail(_: Measured) -> Measured:
    raise ValueError("an error\nin two lines")


def measured_here(measured: Measured) -> Measured:
    # It has the current environment, not the server's, and a limit of its memory.
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return measured if "NAMED_SINCE" in os.environ and limit > 0 else sys.exit(1)


ENDS: dict[str, Callable[[Measured], Any]] = {
    "measures": measured_here,
    "hangs": lambda _: signal.pause(),
    "crashes": lambda _: os.kill(os.getpid(), signal.SIGSEGV),
    "is killed": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "raises": fail,
    "allocates everything": lambda _: torch.empty(2**44, dtype=torch.int8),
}


def end(how: str, measured: Measured, spec: CostSpec, limits: Limits, *_: float) -> Measured:
    return ENDS[how](measured.model_copy(update={"limits": limits}))
