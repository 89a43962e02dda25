"""The loops of `zoo.kernels.dropout` and `zoo.kernels.layer_norm`, compiled by numba.

A loop processes the blocks first to last - 1, so that several threads share its work. Its result
does not depend on how they share it.

Dropout: entry i of a tensor is dropped if 16 bits of the output of a counter-based generator are
below a threshold: SplitMix64 (Steele, Lea, Flood, 2014, "Fast splittable pseudorandom number
generators") at counter i // 4.

bf16, which NumPy lacks, is passed as uint16; it is computed in fp32 and rounded to nearest even.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

BLOCK = 4096
"""Entries of a block of dropout: their random bits stay in the cache of a processor."""

OPTIONS: Any = {"nogil": True, "fastmath": {"reassoc", "contract", "nsz"}}
"""Of numba: sums may be reordered, so that they are computed by vector instructions."""

ROWS = 128
"""Rows of a block of layer norm."""


def compiled(function: Callable[..., None]) -> Callable[..., None]:
    """The machine code of a loop, without the global interpreter lock, kept on disk."""
    try:
        return njit(**OPTIONS, cache=True)(function)
    except RuntimeError:
        # No folder for the cache is writable.
        return njit(**OPTIONS)(function)


def widen(number: Any) -> Any:
    """A float as it is, bf16 as fp32."""


def narrow(number: Any, like: Any) -> Any:
    """`number` in the type of `like`."""


@overload(widen, inline="always")
def _widen_of(number):
    if isinstance(number, types.Float):
        return lambda number: number
    return lambda number: np.uint32(np.uint32(number) << np.uint32(16)).view(np.float32)


@overload(narrow, inline="always")
def _narrow_of(number, like):
    if isinstance(like, types.Float):
        return lambda number, like: number
    return _round_to_bf16


def _round_to_bf16(number, like):
    bits = np.float32(number).view(np.uint32)
    even = np.uint32(np.uint32(bits >> np.uint32(16)) & np.uint32(1))
    return np.uint16(np.uint32(bits + np.uint32(0x7FFF) + even) >> np.uint32(16))


@njit(**OPTIONS)
def copy_matrix(source: Any, target: Any) -> None:
    """Copy a matrix; to assign a slice, numba would compile a message about shapes for seconds."""
    for a in range(source.shape[0]):
        for c in range(source.shape[1]):
            target[a, c] = source[a, c]


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


@compiled
def add_kept(
    x: Any, residual: Any, out: Any, seed: int, threshold: int, scale: Any, first: int, last: int
) -> None:
    """Write scale * x to `out` where kept, zero elsewhere; plus the residual, if it is not None."""
    bits = np.empty(BLOCK // 4, np.uint64)
    draws = bits.view(np.uint16)
    zero = scale - scale
    for block in range(first, last):
        _draw(bits, seed, block)
        start = block * BLOCK
        source, target = x[start:][:BLOCK], out[start:][:BLOCK]
        for i in range(len(source)):
            value = widen(source[i]) * scale if draws[i] >= threshold else zero
            if residual is not None:
                value += widen(residual[start + i])
            target[i] = narrow(value, target[i])


@compiled
def normalise(
    x: Any, weight: Any, bias: Any, eps: Any, out: Any, statistics: Any, first: int, last: int
) -> None:
    """Write the layer norm of each row of `x` to `out`, and its mean and 1 / deviation."""
    width = x.shape[1]
    for row in range(first * ROWS, min(last * ROWS, len(x))):
        source, target = x[row], out[row]
        total = np.float32(0)
        for i in range(width):
            total += source[i]
        mean = total / np.float32(width)
        squares = np.float32(0)
        for i in range(width):
            squares += (source[i] - mean) * (source[i] - mean)
        scale = np.float32(1) / np.sqrt(squares / np.float32(width) + eps)
        statistics[row, 0], statistics[row, 1] = mean, scale
        for i in range(width):
            target[i] = narrow((source[i] - mean) * scale * weight[i] + bias[i], target[i])


@compiled
def normalise_gradient(
    x: Any, weight: Any, statistics: Any, gradient: Any, out: Any, sums: Any, first: int, last: int
) -> None:
    """Write the gradient for `x` to `out`, and for weight and bias, of each block, to `sums`."""
    width = x.shape[1]
    count = np.float32(width)
    for block in range(first, last):
        d_weight, d_bias = sums[block, 0], sums[block, 1]
        for row in range(block * ROWS, min((block + 1) * ROWS, len(x))):
            source, d_out, target = x[row], gradient[row], out[row]
            mean, scale = statistics[row, 0], statistics[row, 1]
            total, radial = np.float32(0), np.float32(0)
            for i in range(width):
                g, unit = widen(d_out[i]), (source[i] - mean) * scale
                d_weight[i] += g * unit
                d_bias[i] += g
                total += g * weight[i]
                radial += g * weight[i] * unit
            for i in range(width):
                g, unit = widen(d_out[i]), (source[i] - mean) * scale
                target[i] = scale * (g * weight[i] - total / count - unit * (radial / count))
