"""Values weighted by products of features, over all tokens, without storing the features.

    state = sum_j g_j v_j^T              g the key map of k
    sums_i = f_i^T state                 f the query map of q
    means_i = sum_j (f_i . g_j) v_j / sum_j (f_i . g_j)

`store` computes the state and `read` the sums or means of all queries. `causal_sum` of all features
is their definition, for which autograd stores features and sums. Here of length n only q, k
and v are stored: some samples, or some tokens of one, are processed at a time, so that features and
states stay in the cache of a processor, and the backward pass computes the features again. For
eager execution on a CPU. Time O(n f e), memory O(n e).

Axis letters beyond the contract's: `f` features, `g` the width of the values that are summed, which
for means is e + 1, with a one appended to each value.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Keys, Queries
from zoo.kernels import eager
from zoo.kernels.causal_sum import ratio

State = Float[Tensor, "b h f g"]

Part = tuple[slice, slice]  # Samples and tokens

# Entries of queries and of keys from which `suits` is true: 1 MiB in fp32. Fewer fit a cache.
LARGE = 2**18

# About the number of features that are computed at a time: 2 MiB in fp32. With two threads smaller
# parts cost more time in starting operations than they save in memory transfers.
PART_FEATURES = 2**19


class FeatureMap(ABC):
    """A differentiable map from tokens to features, and its derivative."""

    features: int  # f, of a token

    @abstractmethod
    def __call__(self, x: Tensor, part: Part) -> Tensor:
        """Return the features (b, h, n, f) of tokens (b, h, n, e) that are this part of all."""

    @abstractmethod
    def vjp(self, x: Tensor, features: Tensor, gradient: Tensor, part: Part, out: Tensor) -> None:
        """Write the gradient of tokens to `out`, from features and their gradient.

        Both may be overwritten. A factor of all features of a query cancels in means: its
        derivative may be left out.
        """


def mean(query_map: FeatureMap, key_map: FeatureMap, q: Queries, k: Keys, v: Keys) -> Queries:
    # Features are nonnegative, and zero by zero is zero.
    return read(query_map, q, store(key_map, k, v, ones=True), mean=True)


def store(key_map: FeatureMap, k: Keys, v: Keys, *, ones: bool) -> State:
    # With `ones`, the state for means. Where padded, features are zero.
    return _Store.apply(key_map, ones, k, v)


def read(query_map: FeatureMap, q: Queries, state: State, *, mean: bool) -> Queries:
    return _Read.apply(query_map, mean, q, state)


def suits(q: Queries, k: Keys) -> bool:
    # This takes less memory and no more time than `causal_sum` of all features.
    return eager.on_cpu(q) and min(q.numel(), k.numel()) >= LARGE


class _Store(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, key_map: FeatureMap, ones: bool, k: Tensor, v: Tensor) -> Tensor:
        (batch, heads, _, width), features = v.shape, key_map.features
        state = v.new_zeros(batch, heads, features, width + ones)
        for part in parts_of(k, features):
            state[part[0]] += key_map(select(k, part), part).mT @ _values(select(v, part), ones)
        ctx.key_map, ctx.ones = key_map, ones
        ctx.save_for_backward(k, v)
        return state

    @staticmethod
    @eager.differentiable_once("sums of features")
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, saved: tuple[Any, ...], d_state: Tensor
    ) -> tuple[Tensor | None, ...]:
        (k, v), key_map = saved, ctx.key_map
        d_k, d_v = empty_like_tokens(k), empty_like_tokens(v)
        for part in parts_of(k, key_map.features):
            tokens, d_sums = select(k, part), d_state[part[0]]
            values = _values(select(v, part), ctx.ones)
            keys = key_map(tokens, part)
            select(d_v, part).copy_(keys @ d_sums[..., : v.shape[-1]])
            key_map.vjp(tokens, keys, values @ d_sums.mT, part, select(d_k, part))
        return None, None, d_k, d_v


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query_map: FeatureMap, mean: bool, q: Tensor, state: Tensor) -> Tensor:
        out = empty_like_tokens(q)
        for part in parts_of(q, query_map.features):
            select(out, part).copy_(_read(query_map(select(q, part), part), state[part[0]], mean))
        ctx.query_map, ctx.mean = query_map, mean
        ctx.save_for_backward(q, state)
        return out

    @staticmethod
    @eager.differentiable_once("sums of features")
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, saved: tuple[Any, ...], d_out: Tensor
    ) -> tuple[Tensor | None, ...]:
        (q, state), query_map = saved, ctx.query_map
        d_q, d_state = empty_like_tokens(q), torch.zeros_like(state)
        for part in parts_of(q, query_map.features):
            tokens, d_sums, of_samples = select(q, part), select(d_out, part), state[part[0]]
            queries = query_map(tokens, part)
            if ctx.mean:
                d_sums = _mean_vjp(queries @ of_samples, d_sums)
            d_state[part[0]] += queries.mT @ d_sums
            query_map.vjp(tokens, queries, d_sums @ of_samples.mT, part, select(d_q, part))
        return None, None, d_q, d_state


def _values(v: Tensor, ones: bool) -> Tensor:
    return F.pad(v, (0, 1), value=1.0) if ones else v


def _read(queries: Tensor, state: Tensor, mean: bool) -> Tensor:
    sums = queries @ state
    if not mean:
        return sums
    sums, scale = _split(sums)
    return sums * scale


def _split(sums: Tensor) -> tuple[Tensor, Tensor]:
    sums, weights = sums.split([sums.shape[-1] - 1, 1], dim=-1)
    return sums, ratio(torch.ones_like(weights), weights)


def _mean_vjp(sums: Tensor, d_means: Tensor) -> Tensor:
    d_sums, (sums, scale) = torch.empty_like(sums), _split(sums)
    torch.mul(d_means, scale, out=d_sums[..., :-1])
    d_sums[..., -1:] = sums.mul_(d_sums[..., :-1]).sum(-1, keepdim=True).mul_(scale).neg_()
    return d_sums


def empty_like_tokens(x: Tensor) -> Tensor:
    # In the order (b, n, h, e), so that merging the heads is no copy.
    return torch.empty_like(x.transpose(1, 2), memory_format=torch.contiguous_format).transpose(
        1, 2
    )


def parts_of(x: Tensor, features: int) -> Iterator[Part]:
    # Several samples, or tokens of one. The states of all samples together do not fit a cache.
    batch, heads, n, _ = x.shape
    size = max(1, PART_FEATURES // (heads * features))
    samples = max(1, size // max(1, n))
    for sample in range(0, batch, samples):
        for first in range(0, n, size):
            yield slice(sample, min(sample + samples, batch)), slice(first, min(first + size, n))


def select(x: Tensor, part: Part) -> Tensor:
    samples, tokens = part
    return x[samples if len(x) > 1 else slice(None), :, tokens]
