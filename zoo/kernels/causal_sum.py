"""Sums of values weighted by products of features, over all tokens or over the past alone.

Every attention with weights `queries_i . keys_j` is such a sum. As `queries (keys^T values)` it
needs no weights. All tokens: time O(n f g), memory O(f g). The past alone:

    plain     the definition, with all n x n weights in memory
    chunked   exact weights within a chunk, and a state for what is before it: O(n chunk (f + g))
              more time, and O(n / chunk f g) memory for the states between chunks

A later token changes no earlier output, not even through rounding. The sum of `keys^T values` over
the past is a state of f g numbers: further tokens continue from it.

Axis letters beyond the contract's: `f` features, `g` the width of the summed values, `t` chunks of
a head, `c` tokens of a chunk, `bht` the chunks of all heads.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Keys, Queries
from zoo.kernels import eager
from zoo.kernels.blocks import block_size, from_blocks, in_blocks

QueryFeatures = Float[Tensor, "b h n f"]
KeyFeatures = Float[Tensor, "b h m f"]
Values = Float[Tensor, "b h m g"]
Sums = Float[Tensor, "b h n g"]
State = Float[Tensor, "b h f g"]
Chunks = Float[Tensor, "bht c _"]


def mean(
    queries: QueryFeatures, keys: KeyFeatures, values: Keys, causal: bool, chunk: int
) -> Queries:
    """Return `sum_j (queries_i . keys_j) values_j / sum_j (queries_i . keys_j)`; see `total`."""
    # Features are nonnegative. If all weights of a query are zero, so is its mean.
    # The denominator is computed by the same product: from a one appended to each value, or, where
    # keys are no wider than values, from the sum of the keys.
    if causal or keys.shape[-1] > values.shape[-1]:
        sums = total(queries, keys, F.pad(values, (0, 1), value=1.0), causal, chunk)
    else:
        sums = queries @ torch.cat([keys.mT @ values, keys.sum(-2)[..., None]], dim=-1)
    return ratio(*sums.split([values.shape[-1], 1], dim=-1))


def total(
    queries: QueryFeatures, keys: KeyFeatures, values: Values, causal: bool, chunk: int
) -> Sums:
    """Return `sum_j (queries_i . keys_j) values_j` over all j, or over j <= i if `causal`."""
    # Where padded, keys are zero and values finite. The result does not depend on `chunk`, the
    # tokens of a causal block.
    if causal:
        return chunked(queries, keys, values, chunk)
    return queries @ (keys.mT @ values)


def plain(queries: QueryFeatures, keys: KeyFeatures, values: Values) -> Sums:
    """Return `sum_{j <= i} (queries_i . keys_j) values_j`: the definition."""
    return (queries @ keys.mT).tril() @ values


def chunked(queries: QueryFeatures, keys: KeyFeatures, values: Values, chunk: int) -> Sums:
    state = values.new_zeros(*keys.shape[:2], keys.shape[-1], values.shape[-1])
    return total_after(queries, keys, values, state, chunk)[0]


def mean_after(
    queries: QueryFeatures, keys: KeyFeatures, values: Keys, state: State, chunk: int
) -> tuple[Queries, State]:
    sums, state = total_after(queries, keys, F.pad(values, (0, 1), value=1.0), state, chunk)
    return ratio(sums[..., :-1], sums[..., -1:]), state


def total_after(
    queries: QueryFeatures, keys: KeyFeatures, values: Values, state: State, chunk: int
) -> tuple[Sums, State]:
    n = queries.shape[-2]
    if n == 1:
        state = state + keys.mT * values
        return queries @ state, state
    blocks = [in_blocks(x, block_size(chunk, n)) for x in (queries, keys, values)]
    compute = _Chunks.apply if eager.on_cpu(queries) else _in_chunks
    # One copy of what has another order in memory, and not one for each product.
    q, k, v = (x.flatten(0, 2) for x in blocks)
    sums, state = compute(q, k, v, state, blocks[0].shape[2])
    return from_blocks(sums.unflatten(0, blocks[0].shape[:3]), n), state


def _in_chunks(q: Chunks, k: Chunks, v: Chunks, state: State, t: int) -> tuple[Chunks, State]:
    states = torch.cat([state[:, :, None], _by_head(k.mT @ v, state, t)], dim=2).cumsum(2)
    return (q @ k.mT).tril() @ v + q @ states[:, :, :-1].flatten(0, 2), states[:, :, -1]


class _Chunks(torch.autograd.Function):
    # The sums are added in place. The gradient of a state is a sum over later chunks, from the last
    # backwards.

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, state: Tensor, t: int
    ) -> tuple[Tensor, Tensor]:
        weights, update = (q @ k.mT).tril_(), _by_head(k.mT @ v, state, t)
        ctx.t = t
        past = torch.cat([state[:, :, None], update[:, :, :-1]], dim=2).cumsum(2)
        ctx.save_for_backward(q, k, v, state, weights, past)
        sums = (weights @ v).baddbmm_(q, past.flatten(0, 2))
        return sums, past[:, :, -1] + update[:, :, -1]

    @staticmethod
    @eager.differentiable_once("causal sums")
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, saved: tuple[Any, ...], d_sums: Tensor, d_after: Tensor
    ) -> tuple[Tensor | None, ...]:
        q, k, v, state, weights, past = saved
        update, slopes = _by_head(q.mT @ d_sums, state, ctx.t), (d_sums @ v.mT).tril_()
        later = torch.cat([update[:, :, 1:], d_after[:, :, None]], dim=2)
        future = later.flip(2).cumsum(2).flip(2)
        d_state, future = future[:, :, 0] + update[:, :, 0], future.flatten(0, 2)
        d_q = (slopes @ k).baddbmm_(d_sums, past.flatten(0, 2).mT)
        d_k = (slopes.mT @ q).baddbmm_(v, future.mT)
        return d_q, d_k, (weights.mT @ d_sums).baddbmm_(k, future), d_state, None


def _by_head(states: Tensor, state: State, t: int) -> Float[Tensor, "b h t f g"]:
    return states.unflatten(0, (*state.shape[:2], t))


def ratio(numerator: Queries, denominator: Float[Tensor, "b h n 1"]) -> Queries:
    # Below this, the error of underflow is larger than the error of rounding.
    smallest = torch.finfo(denominator.dtype).tiny / torch.finfo(denominator.dtype).eps
    return numerator / denominator.masked_fill(denominator < smallest, torch.inf)
