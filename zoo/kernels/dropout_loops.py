"""The loops of `zoo.kernels.dropout`, compiled by numba.

Entry i of a tensor is dropped if 16 bits of the output of a counter-based generator are below a
threshold: SplitMix64 (Steele, Lea, Flood, 2014, "Fast splittable pseudorandom number generators")
at counter i // 4. The result depends on the seed and i alone, not on the number of threads.

bf16, which NumPy lacks, is passed as uint16; it is computed in fp32 and rounded to nearest even.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

BLOCK = 4096
"""Entries processed at a time: their random bits stay in the cache of a processor."""


def _compiled(function: Callable[..., None]) -> Callable[..., None]:
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:
        # No folder for the cache is writable.
        return njit(nogil=True)(function)


def _widen(number):
    """A float as it is, bf16 as fp32."""


def _narrow(number, like):
    """`number` in the type of `like`."""


@overload(_widen, inline="always")
def _widen_of(number):
    if isinstance(number, types.Float):
        return lambda number: number
    return lambda number: np.uint32(np.uint32(number) << np.uint32(16)).view(np.float32)


@overload(_narrow, inline="always")
def _narrow_of(number, like):
    if isinstance(like, types.Float):
        return lambda number, like: number
    return _round_to_bf16


def _round_to_bf16(number, like):
    bits = np.float32(number).view(np.uint32)
    even = np.uint32(np.uint32(bits >> np.uint32(16)) & np.uint32(1))
    return np.uint16(np.uint32(bits + np.uint32(0x7FFF) + even) >> np.uint32(16))


@njit(nogil=True)
def _draw(bits: Any, seed: Any, block: Any) -> None:
    """Fill `bits` with the outputs of the counters of a block."""
    gamma = np.uint64(0x9E3779B97F4A7C15)
    start = np.uint64(seed) + gamma * np.uint64(block * len(bits))
    for i in range(len(bits)):
        z = start + gamma * np.uint64(i)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits[i] = z ^ (z >> np.uint64(31))


@_compiled
def scale_kept(
    x: Any, out: Any, seed: int, threshold: int, scale: Any, first: int, last: int
) -> None:
    """Write scale * x to `out` where kept, zero elsewhere, in the blocks first to last - 1."""
    bits = np.empty(BLOCK // 4, np.uint64)
    draws = bits.view(np.uint16)
    zero = scale - scale
    for block in range(first, last):
        _draw(bits, seed, block)
        source, target = x[block * BLOCK :][:BLOCK], out[block * BLOCK :][:BLOCK]
        for i in range(len(source)):
            value = _widen(source[i]) * scale if draws[i] >= threshold else zero
            target[i] = _narrow(value, target[i])


@_compiled
def add_kept(
    x: Any, residual: Any, out: Any, seed: int, threshold: int, scale: Any, first: int, last: int
) -> None:
    """Write residual + scale * x to `out` where kept, the residual elsewhere."""
    bits = np.empty(BLOCK // 4, np.uint64)
    draws = bits.view(np.uint16)
    zero = scale - scale
    for block in range(first, last):
        _draw(bits, seed, block)
        source, target = x[block * BLOCK :][:BLOCK], out[block * BLOCK :][:BLOCK]
        other = residual[block * BLOCK :][:BLOCK]
        for i in range(len(source)):
            value = _widen(source[i]) * scale if draws[i] >= threshold else zero
            target[i] = _narrow(_widen(other[i]) + value, target[i])
