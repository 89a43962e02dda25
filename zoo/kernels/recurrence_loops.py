"""The loops of `zoo.kernels.recurrence` and of `zoo.variants.mesa`, compiled by numba.

Arrays are (b, n, h, e), of values (b, n, h, f); decay and gates may have strides of zero. A
block is one head of one sample: its state, (e, f), stays in the cache of a processor. A loop
processes the blocks first to last - 1, so that several threads share its work. Its result does not
depend on how they share it.

`backwards` runs over the tokens from the last to the first; with `strict` the sum of a token is
without the token itself, and is added to the result of the other direction.

A state without erased keys is kept S + A: S is the one before a span of tokens, `kept` the product
of the decays since, and A what the tokens of the span added. S and the decays are fp64: in fp32
sums over thousands of tokens, gradients of slow decays have few digits left.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

# Options of numba: sums may be reordered, so that they are computed by vector instructions, and no
# division raises an error.
OPTIONS: Any = {
    "nogil": True, "fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy",
}  # fmt: skip

# Tokens whose systems are solved together: with fewer, tests for overlapping memory take longer
# than the vector instructions behind them.
LANES = 64


def compiled(function: Callable[..., None]) -> Callable[..., None]:
    """The machine code of a loop, without the global interpreter lock, kept on disk."""
    try:
        return njit(**OPTIONS, cache=True)(function)
    except RuntimeError:
        # No folder for the cache is writable.
        return njit(**OPTIONS)(function)


@njit(**OPTIONS)
def copy_matrix(source: Any, target: Any) -> None:
    # To assign a slice, numba would compile a message about shapes for seconds.
    for a in range(source.shape[0]):
        for c in range(source.shape[1]):
            target[a, c] = source[a, c]


@njit(**OPTIONS)
def _end_span(kept: Any, added: Any, state: Any) -> None:
    # `kept` 1, `added` 0 for the next span.
    for a in range(len(kept)):
        for c in range(state.shape[1]):
            state[a, c] = kept[a] * state[a, c] + added[a, c]
            added[a, c] = 0
        kept[a] = 1


@compiled
def add_sums(
    q: Any, k: Any, v: Any, decay: Any, out: Any, ends: Any, span: int, backwards: bool,
    strict: bool, first: int, last: int,
) -> None:  # fmt: skip
    """Write the sums of every token to `out`, or add them with `strict`."""
    # `ends` has the state of each direction, before the first token and after the last.
    (n, heads, width), size, number = q.shape[1:], v.shape[3], q.dtype.type
    state, kept = np.empty((width, size), np.float64), np.ones(width, np.float64)
    before, added = np.empty((width, size), q.dtype), np.zeros((width, size), q.dtype)
    for block in range(first, last):
        b, h, end = block // heads, block % heads, ends[1 if backwards else 0, block]
        copy_matrix(end, state)
        for start in range(0, n, span):
            copy_matrix(state, before)
            for step in range(start, min(n, start + span)):
                i = n - 1 - step if backwards else step
                value, y = v[b, i, h], out[b, i, h]
                if not strict:
                    y[:] = 0
                for a in range(width):
                    query, key, old, row = q[b, i, h, a], k[b, i, h, a], before[a], added[a]
                    kept[a] *= decay[b, i, h, a]
                    # In fp64 one number would make the loop over channels slow.
                    far, factor = number(query * kept[a]), number(decay[b, i, h, a])
                    weight = number(0) if strict else query * key
                    for c in range(size):
                        past = factor * row[c]
                        y[c] += far * old[c] + query * past + weight * value[c]
                        row[c] = past + key * value[c]
            _end_span(kept, added, state)
        copy_matrix(state, end)


@compiled
def add_gradients(
    q: Any, k: Any, v: Any, decay: Any, gradient: Any, d_q: Any, d_k: Any, d_v: Any, d_decay: Any,
    starts: Any, d_ends: Any, span: int, backwards: bool, strict: bool, first: int, last: int,
) -> None:  # fmt: skip
    """Write the gradients of `add_sums`, of log decay too, or add them with `strict`."""
    # `starts` has the state of each direction before the first token, `d_ends` the gradient of the
    # state after the last; in it is written the gradient of the state before the first. The decayed
    # states of `span` tokens are in memory at a time, computed again from the one before the span.
    (n, heads, width), size = q.shape[1:], v.shape[3]
    direction, count = 1 if backwards else 0, (n - 1) // span + 1
    states = np.empty((count, width, size), q.dtype)
    decayed = np.empty((min(n, span), width, size), q.dtype)
    state, kept = np.empty((width, size), np.float64), np.ones(width, np.float64)
    d_after, added = np.empty((width, size), q.dtype), np.zeros((width, size), q.dtype)
    for block in range(first, last):
        b, h = block // heads, block % heads
        copy_matrix(starts[direction, block], state)
        copy_matrix(state, states[0])
        for part in range(1, count):
            for step in range((part - 1) * span, part * span):
                i = n - 1 - step if backwards else step
                _add_token(k[b, i, h], v[b, i, h], decay[b, i, h], kept, added)
            _end_span(kept, added, state)
            copy_matrix(state, states[part])
        copy_matrix(d_ends[direction, block], state)
        for part in range(count - 1, -1, -1):
            start, stop = part * span, min(n, (part + 1) * span)
            for step in range(start, stop):
                i = n - 1 - step if backwards else step
                _query_gradients(
                    k[b, i, h], v[b, i, h], decay[b, i, h], gradient[b, i, h], states[part], kept,
                    added, decayed[step - start], d_q[b, i, h], strict,
                )  # fmt: skip
            # From here on they are of the gradient of the state, from the last token backwards.
            copy_matrix(state, d_after)
            added[:] = 0
            kept[:] = 1
            for step in range(stop - 1, start - 1, -1):
                i = n - 1 - step if backwards else step
                _key_gradients(
                    q[b, i, h], k[b, i, h], v[b, i, h], decay[b, i, h], gradient[b, i, h],
                    decayed[step - start], d_after, kept, added, d_k[b, i, h], d_v[b, i, h],
                    d_decay[b, i, h], strict,
                )  # fmt: skip
            _end_span(kept, added, state)
        copy_matrix(state, d_ends[direction, block])


@njit(**OPTIONS)
def _add_token(k: Any, v: Any, decay: Any, kept: Any, added: Any) -> None:
    number = k.dtype.type
    for a in range(len(k)):
        key, factor, row = k[a], number(decay[a]), added[a]
        kept[a] *= decay[a]
        for c in range(len(v)):
            row[c] = factor * row[c] + key * v[c]


@njit(**OPTIONS)
def _query_gradients(
    k: Any, v: Any, decay: Any, gradient: Any, before: Any, kept: Any, added: Any, decayed: Any,
    out: Any, strict: bool,
) -> None:  # fmt: skip
    # In `decayed` is written the state without the token.
    number = k.dtype.type
    for a in range(len(k)):
        key, factor, old, row, past = k[a], number(decay[a]), before[a], added[a], decayed[a]
        kept[a] *= decay[a]
        far, written, d_query = number(kept[a]), number(0) if strict else key, number(0)
        for c in range(len(v)):
            near = factor * row[c]
            past[c] = near + far * old[c]
            d_query += (past[c] + written * v[c]) * gradient[c]
            row[c] = near + key * v[c]
        out[a] = out[a] + d_query if strict else d_query


@njit(**OPTIONS, inline="always")
def _key_gradients(
    q: Any, k: Any, v: Any, decay: Any, gradient: Any, decayed: Any, later: Any, kept: Any,
    added: Any, d_k: Any, d_v: Any, d_decay: Any, strict: bool,
) -> None:  # fmt: skip
    # `later` and `added` are of the gradient of the state.
    number = k.dtype.type
    if not strict:
        for slope in (d_v, d_k, d_decay):
            slope[:] = 0
    for a in range(len(k)):
        query, key, past, after, row = q[a], k[a], decayed[a], later[a], added[a]
        far, factor = number(kept[a]), number(decay[a])
        d_key, d_log, own = number(0), number(0), query if strict else number(0)
        for c in range(len(v)):
            d_added = row[c] + query * gradient[c]
            d_past = d_added + far * after[c]
            d_written = d_past - own * gradient[c]
            # Not a sum of q d_q - k d_k over later tokens, which cancels.
            d_log += past[c] * d_past
            d_key += d_written * v[c]
            d_v[c] += d_written * key
            row[c] = factor * d_added
        kept[a] *= decay[a]
        d_k[a] += d_key
        d_decay[a] += d_log


@njit(**OPTIONS, inline="always")
def _decay_and_erase(
    v: Any, decay: Any, erased: Any, write: Any, b: int, i: int, h: int,
    before: Any, after: Any, written: Any,
) -> None:  # fmt: skip
    # `after` = diag(decay) before, `written` = write * v - after^T erased.
    for c in range(len(written)):
        written[c] = write[b, i, h, c] * v[b, i, h, c]
    for a in range(len(after)):
        old, row, factor, key = before[a], after[a], decay[b, i, h, a], erased[b, i, h, a]
        for c in range(len(written)):
            row[c] = factor * old[c]
            written[c] -= key * row[c]


@compiled
def write_sums(
    q: Any, k: Any, v: Any, decay: Any, erased: Any, write: Any, out: Any, states: Any, ends: Any,
    span: int, first: int, last: int,
) -> None:  # fmt: skip
    """Write the sums to `out`, and the state before every `span` tokens to `states`."""
    # `ends` has the state, before the first token and after the last.
    n, heads, width = q.shape[1:]
    size = v.shape[3]
    written, y = np.empty(size, q.dtype), np.empty(size, q.dtype)
    for block in range(first, last):
        b, h, state = block // heads, block % heads, ends[block]
        for i in range(n):
            if i % span == 0:
                copy_matrix(state, states[block, i // span])
            _decay_and_erase(v, decay, erased, write, b, i, h, state, state, written)
            y[:] = 0
            for a in range(width):
                query, key, row = q[b, i, h, a], k[b, i, h, a], state[a]
                for c in range(size):
                    row[c] += key * written[c]
                    y[c] += query * row[c]
            for c in range(size):
                out[b, i, h, c] = y[c]


@njit(**OPTIONS, inline="always")
def _erased_gradients(
    k: Any, decay: Any, erased: Any, after: Any, u: Any, d_written: Any, d_state: Any,
    d_erased: Any, d_decay: Any, zero: Any,
) -> None:  # fmt: skip
    # `d_state` becomes the gradient of the state before the token.
    for a in range(len(k)):
        row, d_row, key, read, factor = after[a], d_state[a], k[a], erased[a], decay[a]
        d_read, d_log = zero, zero
        for c in range(len(u)):
            decayed = row[c] - key * u[c]
            d_decayed = d_row[c] - read * d_written[c]
            d_read -= decayed * d_written[c]
            d_log += d_decayed * decayed
            d_row[c] = factor * d_decayed
        d_erased[a] = d_read
        d_decay[min(a, len(d_decay) - 1)] += d_log


@compiled
def write_gradients(
    q: Any, k: Any, v: Any, decay: Any, erased: Any, write: Any, states: Any, gradient: Any,
    d_q: Any, d_k: Any, d_v: Any, d_decay: Any, d_erased: Any, d_write: Any, d_ends: Any, span: int,
    first: int, last: int,
) -> None:  # fmt: skip
    """Write the gradients of `write_sums`; add those of log decay and gate, which begin at 0."""
    # `d_ends` has the gradient of the state after the last token; in it is written the gradient of
    # the state before the first. The states of `span` tokens are computed again at a time. What has
    # one channel has one gradient.
    n, heads, width = q.shape[1:]
    size = v.shape[3]
    after, written = np.empty((span, width, size), q.dtype), np.empty((span, size), q.dtype)
    state, d_state = np.empty((width, size), q.dtype), np.empty((width, size), q.dtype)
    y, d_written = np.empty(size, q.dtype), np.empty(size, q.dtype)
    writes = d_write.shape[3] - 1
    zero = np.zeros(1, q.dtype)[0]
    for block in range(first, last):
        b, h = block // heads, block % heads
        copy_matrix(d_ends[block], d_state)
        for start in range((n - 1) // span * span, -1, -span):
            stop = min(n, start + span)
            copy_matrix(states[block, start // span], state)
            for i in range(start, stop):
                new, u = after[i - start], written[i - start]
                _decay_and_erase(v, decay, erased, write, b, i, h, state, new, u)
                for a in range(width):
                    row, copy, key = new[a], state[a], k[b, i, h, a]
                    for c in range(size):
                        row[c] += key * u[c]
                        copy[c] = row[c]
            for i in range(stop - 1, start - 1, -1):
                new, u = after[i - start], written[i - start]
                d_written[:] = 0
                for c in range(size):
                    y[c] = gradient[b, i, h, c]
                for a in range(width):
                    row, d_row, key, query = new[a], d_state[a], k[b, i, h, a], q[b, i, h, a]
                    d_query, d_key = zero, zero
                    for c in range(size):
                        d_row[c] += query * y[c]
                        d_query += row[c] * y[c]
                        d_key += d_row[c] * u[c]
                        d_written[c] += d_row[c] * key
                    d_q[b, i, h, a], d_k[b, i, h, a] = d_query, d_key
                for c in range(size):
                    d_v[b, i, h, c] = write[b, i, h, c] * d_written[c]
                    d_write[b, i, h, min(c, writes)] += v[b, i, h, c] * d_written[c]
                _erased_gradients(
                    k[b, i, h], decay[b, i, h], erased[b, i, h], new, u, d_written, d_state,
                    d_erased[b, i, h], d_decay[b, i, h], zero,
                )  # fmt: skip
        copy_matrix(d_state, d_ends[block])


@compiled
def write_solutions(
    q: Any, k: Any, v: Any, decay: Any, penalty: Any, out: Any, ends: Any, first: int, last: int
) -> None:
    """Write the x_i with (H_i + diag(penalty)) x_i = q_i, of H_i = decay_i H_(i-1) + v_i k_i^T."""
    # Systems are symmetric and positive definite: elimination needs no pivots. Those of `LANES`
    # tokens are solved at a time, with tokens as the last axis. `ends` has H of each block, before
    # the first token and after the last. H is fp64: its sums take little of the time.
    n, heads, width = q.shape[1:]
    state = np.empty((width, width), np.float64)
    rows, x = np.ones((width, width, LANES), q.dtype), np.empty((width, LANES), q.dtype)
    ratio = np.empty(LANES, q.dtype)
    for block in range(first, last):
        b, h = block // heads, block % heads
        copy_matrix(ends[block], state)
        for start in range(0, n, LANES):
            size = min(LANES, n - start)
            for t in range(size):
                i = start + t
                for a in range(width):
                    value, factor, row = v[b, i, h, a], decay[b, i, h, a], state[a]
                    for c in range(width):
                        row[c] = factor * row[c] + value * k[b, i, h, c]
                    for c in range(a, width):
                        rows[a, c, t] = row[c]
                    rows[a, a, t] += penalty[h, a]
                    x[a, t] = q[b, i, h, a]
            for a in range(width):
                for later in range(a + 1, width):
                    for t in range(LANES):
                        ratio[t] = rows[a, later, t] / rows[a, a, t]
                        x[later, t] -= ratio[t] * x[a, t]
                    for c in range(later, width):
                        for t in range(LANES):
                            rows[later, c, t] -= ratio[t] * rows[a, c, t]
            for a in range(width - 1, -1, -1):
                for c in range(a + 1, width):
                    for t in range(LANES):
                        x[a, t] -= rows[a, c, t] * x[c, t]
                for t in range(LANES):
                    x[a, t] /= rows[a, a, t]
                for t in range(size):
                    out[b, start + t, h, a] = x[a, t]
        copy_matrix(state, ends[block])
