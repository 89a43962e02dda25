"""Loops over blocks of tensors on a CPU, shared by as many threads as PyTorch uses.

They are the threads of PyTorch itself, where it runs on GNU OpenMP (the wheels for Linux): an idle
thread of OpenMP waits actively for some milliseconds for more work, and other threads would have to
share a processor with it (docs/decisions/delta_family.md).
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import torch

# The type of a function that each thread of a team of OpenMP calls.
BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def share(loop: Callable[..., None], blocks: int, least: int, *arguments: Any) -> None:
    # Call `loop(*arguments, first, last)` for consecutive ranges of at least `least` blocks, one a
    # thread. `loop` releases the global interpreter lock. Raises the first error of any thread.
    threads = max(1, min(torch.get_num_threads(), blocks // least))
    ranges = list(pairwise(blocks * i // threads for i in range(threads + 1)))

    def process(bounds: tuple[int, int]) -> None:
        loop(*arguments, *bounds)

    if threads == 1:
        process(ranges[0])
    elif parallel := _openmp():
        _on_team(parallel, process, ranges)
    else:
        list(_pool().map(process, ranges))


def _on_team(
    parallel: Callable[..., None], process: Callable[..., None], ranges: list[tuple[int, int]]
) -> None:
    # The team may have fewer threads than ranges.
    left = iter(ranges)
    errors: list[BaseException] = []

    def body(_: Any) -> None:
        # An exception must not pass through OpenMP.
        try:
            for bounds in left:
                process(bounds)
        except BaseException as error:
            errors.append(error)

    parallel(BODY(body), None, len(ranges), 0)
    if errors:
        raise errors[0]


@cache
def _openmp() -> Callable[..., None] | None:
    # None if PyTorch is built on another OpenMP.
    try:
        # PyTorch makes the symbols of its OpenMP global.
        parallel = ctypes.CDLL(None).GOMP_parallel
    except (AttributeError, OSError, TypeError):
        return None
    parallel.argtypes = [BODY, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None
    return parallel


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "blocks")
