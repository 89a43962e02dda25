"""The engine of this machine: one run after the other in this process, or a process for each run.

`ProcessPoolExecutor` breaks when one of its processes is killed, and its processes outlive a killed
command.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, wait
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from harness.engines import Resources
from harness.interrupts import ending, ignore_interrupts

# The last one, which counts operations, takes seconds to import.
PRELOADED = ("harness.runner", "harness.costs.sweep", "torch._dynamo")


def create(resources: Resources, store: Path) -> Executor | None:
    if resources.workers > 1 or resources.isolated:
        return Processes(visible_gpus() if resources.device == "cuda" else ())
    return None


class Processes(Executor):
    """Calls each function in a new process, a copy of a server that has imported `PRELOADED`.

    The process ends with the call, or by SIGTERM if this process is killed.
    """

    def __init__(self, gpus: Sequence[str] = ()) -> None:
        # Each process uses the least used of `gpus`, names for `CUDA_VISIBLE_DEVICES`.
        self.calls: dict[str, int] = dict.fromkeys(gpus, 0)
        self.running: dict[Future[Any], BaseProcess] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*PRELOADED])
        gpu = min(self.calls, key=lambda name: self.calls[name], default="")
        environment = {**os.environ, **({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})}
        receiver, sender = context.Pipe(duplex=False)
        call = partial(fn, *args, **kwargs)
        process = context.Process(target=_call, args=(sender, environment, call))
        # Ctrl-C reaches all processes of the terminal: this one ends the others.
        with ignore_interrupts():
            process.start()
        sender.close()
        future: Future[Any] = Future()
        self.running[future] = process
        if gpu:
            self.calls[gpu] += 1
        threading.Thread(target=self._receive, args=(receiver, future, gpu), daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        # A second interrupt kills the processes.
        try:
            for process in [*self.running.values()]:
                process.terminate()
            self._wait()
        finally:
            self.kill()

    def kill(self) -> None:
        for process in [*self.running.values()]:
            process.kill()
        self._wait()

    def _wait(self) -> None:
        wait([*self.running])

    def _receive(self, receiver: Connection, future: Future[Any], gpu: str) -> None:
        result, process = None, self.running[future]
        with suppress(EOFError, OSError):
            result = receiver.recv()
        process.join()
        receiver.close()
        if gpu:
            self.calls[gpu] -= 1
        if result is None:
            future.set_exception(BrokenExecutor(ending(process.exitcode or 0)))
        else:
            future.set_result(result)
        del self.running[future]


def _call(sender: Connection, environment: Mapping[str, str], call: Callable[[], Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ |= environment  # the server has the environment of its start
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        sender.send(call())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGTERM)


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def visible_gpus() -> list[str]:
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return chosen.split(",")[:count] if chosen else [str(number) for number in range(count)]
