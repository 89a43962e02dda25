"""Synchronised, alternating samples of the time of calls, until their medians are certain."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from harness.data import is_out_of_memory
from zoo.contract import Unsupported

LEAST_ROUNDS, CERTAIN_ROUNDS, MOST_ROUNDS = 3, 9, 500
"""Rounds of a slow call, before an interval is trusted, and of a fast call."""
TOLERANCE = 0.02
"""Half the width of the interval of a median, relative to the median, at which sampling ends."""
SHORTEST = 2e-3
"""Seconds of a sample, at least: shorter calls are repeated within a sample."""
FLUSHED_BYTES = 256 * 2**20
"""Written between two samples on a GPU: more than its L2 cache holds."""


TRIAL = 0.3
"""Seconds of a short trial, about."""
SLOW = 1.0
"""Seconds of a call that is timed once in a trial."""
SLOWER = 2.0
"""A call that takes more than this multiple of the fastest has no further part in a trial."""

Call = Callable[[], Any]
Timer = Callable[[Call, int], float]
"""Seconds of one call, as the mean of a number of calls, one after the other."""
Key = TypeVar("Key")


def sample_alternately(
    calls: Sequence[Callable[[], Any]],
    timer: Timer,
    *,
    budget: float,
    shortest: float = SHORTEST,
    clock: Callable[[], float] = time.monotonic,
) -> list[list[float]]:
    """Time each call once a round until the medians are certain or the time is spent.

    Every call runs twice before the first round: once to warm up, once for its length.

    Args:
        calls: what is timed; other load of the machine affects all of them alike.
        timer: times one call.
        budget: seconds after which no round begins, once there are `LEAST_ROUNDS`.
        shortest: seconds of a sample, at least; calls are repeated within a sample to reach it.
        clock: gives seconds.

    Returns:
        Seconds of one call in every round, for each of `calls`.
    """
    start = clock()
    repeats = []
    for call in calls:
        timer(call, 1)
        repeats.append(max(1, math.ceil(shortest / max(timer(call, 1), 1e-9))))
    seconds: list[list[float]] = [[] for _ in calls]
    while True:
        for call, repeat, taken in zip(calls, repeats, seconds, strict=True):
            taken.append(timer(call, repeat))
        rounds = len(seconds[0])
        if (clock() - start >= budget and rounds >= LEAST_ROUNDS) or rounds >= MOST_ROUNDS:
            return seconds
        if rounds >= CERTAIN_ROUNDS and max(map(relative_uncertainty, seconds)) <= TOLERANCE:
            return seconds


def short_trial(makers: Mapping[Key, Callable[[], Call]], timer: Timer) -> dict[Key, float]:
    """Seconds of the fastest calls, the least of a few, timed alternately: to choose one of them.

    Left out are calls that do not fit in memory, or that this machine does not support. Each is
    called twice or four times; further calls are for those that are not much slower than another.

    Args:
        makers: make the calls.
        timer: times one call.
    """
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
    samples = sample_alternately([calls[name] for name in names], timer, budget=TRIAL)
    return {**first, **dict(zip(names, map(min, samples), strict=True))}


def relative_uncertainty(seconds: Sequence[float]) -> float:
    """Half the width of the 95 % interval of the median, over the median.

    The interval is between order statistics (binomial, normal approximation), so that no shape of
    the distribution is assumed.
    """
    ordered, count = sorted(seconds), len(seconds)
    half = 0.98 * math.sqrt(count)
    low, high = math.floor(count / 2 - half), math.ceil(count / 2 + half)
    low, high = max(low, 0), min(high, count - 1)
    return (ordered[high] - ordered[low]) / 2 / ordered[count // 2]


def cpu_timer(clock: Callable[[], float] = time.perf_counter) -> Timer:
    """The timer of a CPU, which needs no synchronisation."""

    def timer(call: Callable[[], Any], repeats: int) -> float:
        start = clock()
        for _ in range(repeats):
            call()
        return (clock() - start) / repeats

    return timer


class CudaTimer:
    """Times calls by CUDA events, each with an empty L2 cache."""

    def __init__(self, device: torch.device) -> None:
        """Allocate the buffer that replaces what the cache holds."""
        self.device = device
        self.buffer = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device=device)

    def __call__(self, call: Callable[[], Any], repeats: int) -> float:
        """See `Timer`."""
        total = 0.0
        for _ in range(repeats):
            self.buffer.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            torch.cuda.synchronize(self.device)
            total += start.elapsed_time(end) / 1000
        return total / repeats


def timer_of(device: torch.device) -> Timer:
    """The timer of a device."""
    return cpu_timer() if device.type == "cpu" else CudaTimer(device)
