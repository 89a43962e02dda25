"""The loops of `zoo.kernels.recurrence`, compiled by numba.

Arrays are (b, n, h, e); `decay` may have strides of zero. A block is one head of one sample: its
state, (e, e), stays in the cache of a processor. `backwards` runs over the tokens from the last to
the first; with `strict` a token is not part of its own sum.
"""

from typing import Any

import numpy as np
from numba import njit

from zoo.kernels.cpu_loops import compiled


@compiled
def add_sums(
    q: Any, k: Any, v: Any, decay: Any, out: Any, backwards: bool, strict: bool,
    first: int, last: int,
) -> None:  # fmt: skip
    """Add the sums of every token to `out`."""
    n, heads, width = q.shape[1:]
    state = np.empty((width, width), q.dtype)
    for block in range(first, last):
        b, h = block // heads, block % heads
        state[:] = 0
        for step in range(n):
            i = n - 1 - step if backwards else step
            value, y = v[b, i, h], out[b, i, h]
            for a in range(width):
                query, key, factor, row = q[b, i, h, a], k[b, i, h, a], decay[b, i, h, a], state[a]
                own = query * (key - key) if strict else query * key
                for c in range(width):
                    past = factor * row[c]
                    y[c] += query * past + own * value[c]
                    row[c] = past + key * value[c]


@compiled
def add_gradients(
    q: Any, k: Any, v: Any, decay: Any, gradient: Any, d_q: Any, d_k: Any, d_v: Any, d_decay: Any,
    backwards: bool, strict: bool, first: int, last: int,
) -> None:  # fmt: skip
    """Add the gradients of `add_sums` to `d_q`, `d_k`, `d_v`, and of log decay to `d_decay`."""
    n, heads, width = q.shape[1:]
    state = np.empty((width, width), q.dtype)
    queries = np.empty((n, width), q.dtype)
    # The gradient of log decay is the sum of q d_q - k d_k over the tokens from here on.
    total = np.empty(width, np.float64)
    for block in range(first, last):
        b, h = block // heads, block % heads
        state[:] = 0
        for step in range(n):
            i = n - 1 - step if backwards else step
            _query_gradients(
                k[b, i, h], v[b, i, h], decay[b, i, h], gradient[b, i, h], state, queries[i], strict
            )
        state[:] = 0
        total[:] = 0
        for step in range(n):
            i = step if backwards else n - 1 - step
            value, y, d_value = v[b, i, h], gradient[b, i, h], d_v[b, i, h]
            for a in range(width):
                query, key, factor, row = q[b, i, h, a], k[b, i, h, a], decay[b, i, h, a], state[a]
                d_key = query - query
                own = d_key if strict else query
                for c in range(width):
                    d_state = row[c] + own * y[c]
                    d_key += d_state * value[c]
                    d_value[c] += d_state * key
                    row[c] = factor * (row[c] + query * y[c])
                total[a] += query * queries[i, a] - key * d_key
                d_q[b, i, h, a] += queries[i, a]
                d_k[b, i, h, a] += d_key
                d_decay[b, i, h, a] += total[a]


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _query_gradients(
    k: Any, v: Any, decay: Any, gradient: Any, state: Any, out: Any, strict: bool
) -> None:
    """Write the gradient of one query to `out`, and add its token to the state."""
    width = len(k)
    for a in range(width):
        key, factor, row = k[a], decay[a], state[a]
        own = key - key if strict else key
        d_query = own
        d_query -= own
        for c in range(width):
            past = factor * row[c]
            d_query += (past + own * v[c]) * gradient[c]
            row[c] = past + key * v[c]
        out[a] = d_query
