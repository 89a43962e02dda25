"""Values weighted by the probability that hashes of unit vectors collide.

    w_ij = (1 - arccos(q_i . k_j) / pi)^tau        out_i = sum_j w_ij v_j

over all keys, or those up to the query. There is no division by a sum of weights, so a key whose
value is zero has no effect. `plain` is the definition, for which autograd stores several n x m
matrices. `tiled` stores none: it processes tiles of some queries and all keys, small enough for the
cache of a processor, and recomputes their weights in the backward pass. Time O(n m e) for both,
memory O(n m) or O(n e). `tiled` runs eagerly, on a CPU, and is differentiable once, as is `plain`
with the lower bound below.

The derivative of w with respect to the cosine s is

    tau (1 - arccos(s) / pi)^(tau - 1) / (pi sqrt(1 - s^2))

with a lower bound on the root to limit rounding errors; or its lower bound, tau / 2 w.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Keys, Queries
from zoo.kernels import eager

TILE = 2**17  # The largest number of weights in a tile, unless one query has more keys

Weights = Float[Tensor, "b h n m"]


class Form(NamedTuple):
    causal: bool
    tau: int
    bound: bool  # Whether the derivative is replaced by its lower bound


def plain(q: Queries, k: Keys, v: Keys, form: Form, dropout: float = 0.0) -> Queries:
    weights = collision_probabilities(q @ k.mT, form.tau, form.bound)
    return F.dropout(weights.tril() if form.causal else weights, dropout) @ v


def collision_probabilities(cosines: Weights, tau: int, bound: bool) -> Weights:
    """`(1 - arccos(s) / pi)^tau`, with its derivative limited near 1, or the lower bound."""
    if not torch.compiler.is_compiling():
        return _Probabilities.apply(cosines, tau, bound)
    weights, slope = _weights(cosines.detach().clamp(-1.0, 1.0), tau, bound)
    # The second term is zero, and carries the derivative of the result, which is all that a
    # compiler needs.
    return weights + slope * (cosines - cosines.detach())


class _Probabilities(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(cosines: Tensor, tau: int, bound: bool) -> Tensor:
        return _power(_one_plane(cosines.clamp(-1.0, 1.0)), tau)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        cosines, ctx.tau, ctx.bound = inputs
        ctx.save_for_backward(cosines)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        (cosines,), (gradient,) = ctx.saved_tensors, gradients
        if ctx.bound:
            return _bound_gradient(ctx, gradient)
        power = _Probabilities.apply(cosines, ctx.tau - 1, False)
        squares = (1 - cosines.square()).clamp_min(64 * torch.finfo(cosines.dtype).eps)
        return gradient * power * (ctx.tau / math.pi) * squares.rsqrt(), None, None


@eager.differentiable_once("yoso.gradient=bound", "give yoso.gradient=exact")
def _bound_gradient(
    ctx: Any, saved: tuple[Any, ...], gradient: Tensor
) -> tuple[Tensor, None, None]:
    # An estimate of the gradient, which has no derivative.
    (cosines,) = saved
    slope = _Probabilities.apply(cosines, ctx.tau, True) * (ctx.tau / 2)
    return gradient * slope, None, None


def tiled(q: Queries, k: Keys, v: Keys, form: Form) -> Queries:
    return _Tiled.apply(q, k, v, form)


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, form: Form) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.form = form
        out = torch.empty_like(q)
        for rows, columns in _tiles(q, k, form.causal):
            s = (q[rows] @ k[columns].mT).clamp_(-1.0, 1.0)
            weights = _power(_one_plane(s), form.tau)
            out[rows] = (_mask_future(weights, rows) if form.causal else weights) @ v[columns]
        return out

    @staticmethod
    @eager.differentiable_once("collision probabilities")
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, saved: tuple[Any, ...], d_out: Tensor
    ) -> tuple[Tensor | None, ...]:
        (q, k, v), form = saved, ctx.form
        d_q, d_k, d_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for rows, columns in _tiles(q, k, form.causal):
            s = (q[rows] @ k[columns].mT).clamp_(-1.0, 1.0)
            weights, slope = _weights(s, form.tau, form.bound)
            if form.causal:
                weights, slope = _mask_future(weights, rows), _mask_future(slope, rows)
            d_v[columns] += weights.mT @ d_out[rows]
            d_s = slope.mul_(d_out[rows] @ v[columns].mT)
            d_q[rows] = d_s @ k[columns]
            d_k[columns] += d_s.mT @ q[rows]
        return d_q, d_k, d_v, None


Slice = tuple[int, int, slice]  # The index of a sample, the index of a head, and tokens


def _tiles(q: Tensor, k: Tensor, causal: bool) -> Iterator[tuple[Slice, Slice]]:
    (batch, heads, n, _), m = q.shape, k.shape[2]
    rows = max(1, TILE // m)
    for b in range(batch):
        for h in range(heads):
            for first in range(0, n, rows):
                last = min(first + rows, n)
                yield (b, h, slice(first, last)), (b, h, slice(last if causal else m))


def _mask_future(weights: Tensor, rows: Slice) -> Tensor:
    return weights.tril_(rows[2].start)


def _weights(s: Tensor, tau: int, bound: bool) -> tuple[Tensor, Tensor]:
    probability = _one_plane(s)
    power = _power(probability, tau - 1)
    weights = power * probability
    if bound:
        return weights, weights * (tau / 2)
    squares = (1 - s.square()).clamp_min_(64 * torch.finfo(s.dtype).eps)
    return weights, power.mul_(tau / math.pi).mul_(squares.rsqrt_())


def _one_plane(s: Tensor) -> Tensor:
    # The probability that both vectors lie on the same side of one random hyperplane.
    return s.acos().mul_(-1 / math.pi).add_(1.0)


def _power(x: Tensor, exponent: int) -> Tensor:
    # Repeated squaring takes a fraction of the time of `pow`.
    power = None
    while exponent:
        if exponent & 1:
            power = x if power is None else power * x
        exponent >>= 1
        if exponent:
            x = x.square()
    return torch.ones_like(x) if power is None else power
