"""The timer of every measurement: calls timed alternately, so that load affects all of them."""

import math
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from harness.data import is_out_of_memory
from zoo.contract import Unsupported

# Rounds of a slow call, rounds before an interval is trusted, and rounds of a fast call.
LEAST_ROUNDS, CERTAIN_ROUNDS, MOST_ROUNDS = 3, 9, 500
# Half the width of the interval of a median, relative to the median, at which sampling ends.
TOLERANCE = 0.02
SHORTEST = 2e-3  # Seconds of a sample, at least: shorter calls are repeated within a sample
FLUSHED_BYTES = 256 * 2**20  # Written between two samples on a GPU: more than its L2 cache holds
TRIAL = 0.3  # Seconds of a short trial, about
SLOW = 1.0  # Seconds of a call that is timed once in a trial
SLOWER = 2.0  # A call this much slower than the fastest leaves a trial
Call = Callable[[], Any]
# The mean seconds of a number of successive calls.
Timer = Callable[[Call, int], float]
Key = TypeVar("Key")


def processor_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def wall_clock(device: torch.device, clock: Callable[[], float] = time.perf_counter) -> Timer:
    def timer(call: Call, repeats: int) -> float:
        synchronise(device)
        start = clock()
        for _ in range(repeats):
            call()
        synchronise(device)
        return (clock() - start) / repeats

    return timer


def kernel_clock(device: torch.device) -> Timer:
    # CUDA events, each with an empty L2 cache.
    buffer = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device=device)

    def timer(call: Call, repeats: int) -> float:
        total = 0.0
        for _ in range(repeats):
            buffer.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            torch.cuda.synchronize(device)
            total += start.elapsed_time(end) / 1000
        return total / repeats

    return timer


def timer_of(device: torch.device) -> Timer:
    return kernel_clock(device) if device.type == "cuda" else wall_clock(device)


def sample(
    calls: Sequence[Call], timer: Timer, *, seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> list[list[float]]:  # fmt: skip
    # As many rounds as make the medians certain, within `seconds` after `LEAST_ROUNDS`. Short calls
    # are repeated until a sample takes `SHORTEST`.
    start = clock()
    for call in calls:
        timer(call, 1)
    lengths = [timer(call, 1) for call in calls]
    repeats = [max(1, math.ceil(SHORTEST / max(length, 1e-9))) for length in lengths]
    samples: list[list[float]] = [[] for _ in calls]
    while True:
        for call, repeat, taken in zip(calls, repeats, samples, strict=True):
            taken.append(timer(call, repeat))
        done = len(samples[0])
        if done == MOST_ROUNDS or (done >= LEAST_ROUNDS and clock() - start >= seconds):
            return samples
        if done >= CERTAIN_ROUNDS and max(map(relative_uncertainty, samples)) <= TOLERANCE:
            return samples


def short_trial(makers: Mapping[Key, Callable[[], Call]], timer: Timer) -> dict[Key, float]:
    # Without calls that do not fit in memory, or that this machine does not support.
    calls: dict[Key, Call] = {}
    first: dict[Key, float] = {}
    for name, make in makers.items():
        try:
            call = make()
            # The optimiser's state exists from the second step on.
            timer(call, 1)
            seconds = timer(call, 1)
            if seconds < SLOW:
                seconds = min(seconds, timer(call, 1), timer(call, 1))
            first[name], calls[name] = seconds, call
        except (MemoryError, RuntimeError, Unsupported) as error:
            if not (isinstance(error, Unsupported) or is_out_of_memory(error)):
                raise
    names = [name for name in calls if first[name] <= SLOWER * min(first.values())]
    if len(names) < 2 or max(first.values()) > SLOW:
        return first
    samples = sample([calls[name] for name in names], timer, seconds=TRIAL)
    return {**first, **dict(zip(names, map(min, samples), strict=True))}


def relative_uncertainty(seconds: Sequence[float]) -> float:
    # Between order statistics (binomial, normal approximation): no distribution is assumed.
    ordered, count = sorted(seconds), len(seconds)
    half = 0.98 * math.sqrt(count)
    low, high = max(math.floor(count / 2 - half), 0), min(math.ceil(count / 2 + half), count - 1)
    return (ordered[high] - ordered[low]) / 2 / ordered[count // 2]
