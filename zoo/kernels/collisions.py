"""Values weighed by the chance that hashes of unit vectors collide.

    w_ij = (1 - arccos(q_i . k_j) / pi)^tau        out_i = sum_j w_ij v_j

over all keys, or those up to the query. No weight is divided by: a key whose value is zero is not
there. `plain` says so to autograd, which then keeps several matrices of n x m. `tiled` keeps none:
it works on tiles of some queries by all keys, small enough for a processor's cache, and computes
their weights again in the backward pass. Time O(n m e) for both, memory O(n m) or O(n e). Eager, on
a CPU, and differentiable once.

The derivative of w in the cosine s is tau (1 - arccos(s) / pi)^(tau - 1) / (pi sqrt(1 - s^2)), the
root no smaller than rounding leaves it; or, as a bound of it from below, tau / 2 w.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

TILE = 2**17
"""Weights of a tile, at most, unless one query has more keys."""


class Form(NamedTuple):
    """Which weights.

    Attributes:
        causal: whether a query sees keys up to itself only.
        tau: hyperplanes of a hash.
        bound: whether the derivative is the bound.
    """

    causal: bool
    tau: int
    bound: bool


def plain(
    q: Float[Tensor, "b h n e"],
    k: Float[Tensor, "b h m e"],
    v: Float[Tensor, "b h m e"],
    form: Form,
    dropout: float = 0.0,
) -> Float[Tensor, "b h n e"]:
    """The definition."""
    weights = chances(q @ k.mT, form.tau, form.bound)
    return F.dropout(weights.tril() if form.causal else weights, dropout) @ v


def chances(cosines: Float[Tensor, "b h n m"], tau: int, bound: bool) -> Float[Tensor, "b h n m"]:
    """`(1 - arccos(s) / pi)^tau`, with its derivative cut off at rounding, or the lower bound."""
    s = cosines.detach().clamp(-1.0, 1.0)
    weights, slope = _weights(s, tau, bound)
    # Nothing is added; what is nothing carries the derivative.
    return weights + slope * (cosines - cosines.detach())


def tiled(
    q: Float[Tensor, "b h n e"],
    k: Float[Tensor, "b h m e"],
    v: Float[Tensor, "b h m e"],
    form: Form,
) -> Float[Tensor, "b h n e"]:
    """What `plain` computes, tile by tile."""
    return _Tiled.apply(q, k, v, form)


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, form: Form) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.form = form
        out = torch.empty_like(q)
        for ask, answer in _tiles(q, k, form.causal):
            s = (q[ask] @ k[answer].mT).clamp_(-1.0, 1.0)
            weights = _power(_chance(s), form.tau)
            out[ask] = (_past(weights, ask) if form.causal else weights) @ v[answer]
        return out

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, d_out: Tensor
    ) -> tuple[Tensor | None, ...]:
        (q, k, v), form = ctx.saved_tensors, ctx.form
        d_q, d_k, d_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for ask, answer in _tiles(q, k, form.causal):
            s = (q[ask] @ k[answer].mT).clamp_(-1.0, 1.0)
            weights, slope = _weights(s, form.tau, form.bound)
            if form.causal:
                weights, slope = _past(weights, ask), _past(slope, ask)
            d_v[answer] += weights.mT @ d_out[ask]
            d_s = slope.mul_(d_out[ask] @ v[answer].mT)
            d_q[ask] = d_s @ k[answer]
            d_k[answer] += d_s.mT @ q[ask]
        return d_q, d_k, d_v, None


Place = tuple[int, int, slice]
"""A sample, a head, and tokens of it."""


def _tiles(q: Tensor, k: Tensor, causal: bool) -> Iterator[tuple[Place, Place]]:
    """Queries, and all keys, or those up to the last query."""
    (batch, heads, n, _), m = q.shape, k.shape[2]
    rows = max(1, TILE // m)
    for b in range(batch):
        for h in range(heads):
            for first in range(0, n, rows):
                last = min(first + rows, n)
                yield (b, h, slice(first, last)), (b, h, slice(last if causal else m))


def _past(weights: Tensor, ask: Place) -> Tensor:
    """`weights` with zeros where a key is behind its query."""
    return weights.tril_(ask[2].start)


def _weights(s: Tensor, tau: int, bound: bool) -> tuple[Tensor, Tensor]:
    """The weights of cosines in [-1, 1], and their derivatives."""
    chance = _chance(s)
    below = _power(chance, tau - 1)
    weights = below * chance
    if bound:
        return weights, weights * (tau / 2)
    squares = (1 - s.square()).clamp_min_(64 * torch.finfo(s.dtype).eps)
    return weights, below.mul_(tau / math.pi).mul_(squares.rsqrt_())


def _chance(s: Tensor) -> Tensor:
    """That one hyperplane has both vectors on one side."""
    return s.acos().mul_(-1 / math.pi).add_(1.0)


def _power(x: Tensor, exponent: int) -> Tensor:
    """By repeated squares, which take a fraction of the time that a power takes."""
    power = None
    while exponent:
        if exponent & 1:
            power = x if power is None else power * x
        exponent >>= 1
        if exponent:
            x = x.square()
    return torch.ones_like(x) if power is None else power
