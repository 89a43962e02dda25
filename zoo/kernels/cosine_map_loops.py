"""Unit features, their Gram matrices and gradients, compiled by numba for a CPU.

Arrays of length n are (samples, n, groups, width), with bf16 as uint16. A block is ROWS tokens of
one sample; STRIP of them are computed at a time, in fp32 at least, from rows that are padded with
zeros to whole vector instructions.
"""

from typing import Any

import numpy as np
from numba import njit

from zoo.kernels.cpu_loops import OPTIONS, compiled, copy_matrix, narrow, widen

ROWS = 256
"""Tokens of a block."""

STRIP = 8
"""Tokens of a strip."""

LANES = 16
"""Entries of a vector of fp32 with AVX512."""


@njit
def blocks(n: int) -> int:
    """Return the number of blocks of a sample of n tokens."""
    return -(-n // ROWS)


@njit
def padded(width: int) -> int:
    """Return the least number of entries, at least `width`, that fills vector instructions."""
    return -(-width // LANES) * LANES


# Written out: numba does not vectorise a sum over the tokens of a strip.


@njit(**OPTIONS)
def _add_gram(rows: Any, width: int, sums: Any) -> None:
    """Add rows^T rows to `sums`."""
    for a in range(width):
        total = sums[a]
        for c in range(len(total)):
            total[c] += (
                rows[0, a] * rows[0, c] + rows[1, a] * rows[1, c]
                + rows[2, a] * rows[2, c] + rows[3, a] * rows[3, c]
                + rows[4, a] * rows[4, c] + rows[5, a] * rows[5, c]
                + rows[6, a] * rows[6, c] + rows[7, a] * rows[7, c]
            )  # fmt: skip


@njit(**OPTIONS)
def _add_products(rows: Any, width: int, factors: Any, sums: Any) -> None:
    """Add the products of rows and `factors` to `sums`."""
    for a in range(width):
        x0, x1, x2, x3 = rows[0, a], rows[1, a], rows[2, a], rows[3, a]
        x4, x5, x6, x7 = rows[4, a], rows[5, a], rows[6, a], rows[7, a]
        row = factors[a]
        for c in range(len(row)):
            factor = row[c]
            sums[0, c] += x0 * factor
            sums[1, c] += x1 * factor
            sums[2, c] += x2 * factor
            sums[3, c] += x3 * factor
            sums[4, c] += x4 * factor
            sums[5, c] += x5 * factor
            sums[6, c] += x6 * factor
            sums[7, c] += x7 * factor


@compiled
def unit_features(
    u: Any, real: Any, norms: Any, grams: Any, tiny: Any, first: int, last: int
) -> None:
    """Replace `u` by its unit features, zero where not real; write its norms and Gram matrices.

    `norms` is (samples, n, groups), infinite where not real: gradients are divided by it.
    `grams`, the Gram matrices of each block, is (samples, blocks, groups, width, width), or has no
    sample.
    """
    _, n, groups, width = u.shape
    of_sample, length = blocks(n), padded(width)
    rows = np.zeros((STRIP, length), norms.dtype)
    sums = np.zeros((groups, length, length), norms.dtype)
    # In the type of the sums: a literal 0.0 is a double.
    zero = tiny - tiny
    for block in range(first, last):
        sample, part = block // of_sample, block % of_sample
        end = min((part + 1) * ROWS, n)
        sums[:] = 0
        for start in range(part * ROWS, end, STRIP):
            for g in range(groups):
                for row in range(STRIP):
                    i = start + row
                    if i >= end or not real[sample, i]:
                        rows[row] = 0
                        if i < end:
                            u[sample, i, g] = 0
                            norms[sample, i, g] = np.inf
                        continue
                    entries = u[sample, i, g]
                    squares = zero
                    for a in range(width):
                        squares += widen(entries[a]) * widen(entries[a])
                    norm = max(np.sqrt(squares), tiny)
                    norms[sample, i, g] = norm
                    for a in range(width):
                        entries[a] = narrow(widen(entries[a]) / norm, entries[a])
                        rows[row, a] = widen(entries[a])
                if len(grams):
                    _add_gram(rows, width, sums[g])
        if len(grams):
            for g in range(groups):
                copy_matrix(sums[g, :width, :width], grams[sample, part, g])


@compiled
def unit_features_gradient(
    phi: Any, norms: Any, d_grams: Any, d_phi: Any, d_bias: Any, first: int, last: int
) -> None:
    """Replace `d_phi`, the gradient of tokens for phi, by the gradient for u; write its sums.

    `d_grams`, the gradient for phi^T phi plus its transpose, is (samples, groups, width, width) or
    padded with zeros to whole vector instructions, which is faster; or has no sample. `d_bias`, the
    sums of each block, is (samples, blocks, groups, width).
    """
    _, n, groups, width = phi.shape
    of_sample, length = blocks(n), padded(width)
    rows = np.zeros((STRIP, length), norms.dtype)
    changes = np.zeros((STRIP, length), norms.dtype)
    # In the type of the sums: a literal 0.0 is a double.
    zero = rows[0, 0]
    for block in range(first, last):
        sample, part = block // of_sample, block % of_sample
        end = min((part + 1) * ROWS, n)
        for start in range(part * ROWS, end, STRIP):
            count = min(STRIP, end - start)
            for g in range(groups):
                for row in range(count):
                    features, slopes = phi[sample, start + row, g], d_phi[sample, start + row, g]
                    for a in range(width):
                        rows[row, a] = widen(features[a])
                        changes[row, a] = widen(slopes[a])
                if len(d_grams):
                    _add_products(rows, width, d_grams[sample, g], changes)
                sums = d_bias[sample, part, g]
                for row in range(count):
                    unit, change, slopes = rows[row], changes[row], d_phi[sample, start + row, g]
                    norm, radial = norms[sample, start + row, g], zero
                    for a in range(length):
                        radial += change[a] * unit[a]
                    for a in range(width):
                        d_u = (change[a] - radial * unit[a]) / norm
                        sums[a] += d_u
                        slopes[a] = narrow(d_u, slopes[a])
