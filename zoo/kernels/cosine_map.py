"""The part of Primal-Attention of length n: maps tokens to tokens through unit features.

With u = x W^T + b in g groups (queries and keys of every head) and phi = u / ||u|| group by group:

    tokens = phi output_map      (n, gp) times (gp, d), output_map may differ per sample
    gram_g = phi_g^T phi_g       (p, p) for each group

`plain` is the definition, for which autograd stores u, its norms and phi: several copies of length
n. `chunked` stores x alone. It processes sample by sample, so that a sample stays in the cache of a
processor, and recomputes phi in the backward pass. Its gradient of the normalisation is
du = (dphi - phi (phi . dphi)) / ||u||. `chunked` runs eagerly, on a CPU, and is differentiable
once.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from zoo.contract import Mask, Tokens
from zoo.kernels.precision import at_least_fp32, full_precision

CHUNKED_FROM = 512
"""Tokens of a sample from which `chunked` is faster on a CPU; below, its loop over samples costs
more than it saves: forward and backward of 64 samples of 64 tokens take 2.9 times as long."""

TINY = 1e-12
"""Smaller norms are replaced by this one, so that the zero vector has the feature zero."""

Weight = Float[Tensor, "gp d"]
Bias = Float[Tensor, " gp"]
OutputMap = Float[Tensor, "#b gp d"]
Features = Float[Tensor, "b n g p"]
Grams = Float[Tensor, "samples g p p"]


def plain(
    x: Tokens,
    weight: Weight,
    bias: Bias,
    output_map: OutputMap,
    groups: int,
    mask: Mask | None,
    with_gram: bool,
) -> tuple[Tokens, Grams]:
    """The definition. Padded tokens have zero features, so they enter no Gram matrix.

    There is a Gram matrix for each sample and group, or none without `with_gram`.
    """
    phi = unit(F.linear(x, weight, bias).unflatten(-1, (groups, -1)), mask)
    return phi.flatten(2) @ output_map, gram(phi if with_gram else phi[:0])


def unit(u: Features, mask: Mask | None) -> Features:
    """Return u / ||u|| over the last axis, zero at padded tokens."""
    # fp32: squares of half-precision entries overflow or vanish.
    norm = torch.linalg.vector_norm(u, dim=-1, keepdim=True, dtype=at_least_fp32(u.dtype))
    scale = norm.clamp_min(TINY).reciprocal()
    if mask is not None:
        scale = scale * mask[:, :, None, None]
    return u * scale.to(u.dtype)


def gram(phi: Features) -> Grams:
    """Return phi^T phi of every sample and group, in fp32 at least."""
    with full_precision(phi.transpose(1, 2)) as (rows,):
        return rows.mT @ rows


def chunked(
    x: Tokens,
    weight: Weight,
    bias: Bias,
    output_map: OutputMap,
    groups: int,
    mask: Mask | None,
    with_gram: bool,
) -> tuple[Tokens, Grams]:
    """The result of `plain`, in less memory and time: `python -m benchmarks.primal_layer`."""
    dtype = x.dtype
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
    x, weight, bias, output_map = (part.to(dtype) for part in (x, weight, bias, output_map))
    output_map = output_map.expand(len(x), -1, -1)
    with torch.autocast(x.device.type, enabled=False):
        return _Chunked.apply(x, weight, bias, output_map, groups, mask, with_gram)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        x, weight, bias, output_map, groups, mask, with_gram = inputs
        ctx.save_for_backward(x, weight, bias, output_map, mask)
        ctx.groups = groups
        width = len(weight) // groups
        tokens = x.new_empty(*x.shape[:2], output_map.shape[-1])
        samples = len(x) if with_gram else 0
        grams = x.new_empty(samples, groups, width, width, dtype=at_least_fp32(x.dtype))
        for i in range(len(x)):
            phi, _ = _features(x[i], weight, bias, groups, None if mask is None else mask[i])
            torch.mm(phi.flatten(1), output_map[i], out=tokens[i])
            if with_gram:
                rows = phi.transpose(0, 1).to(grams.dtype)
                torch.bmm(rows.mT, rows, out=grams[i])
        return tokens, grams

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, d_tokens: Tensor, d_grams: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, weight, bias, output_map, mask = ctx.saved_tensors
        d_x, d_output_map = torch.empty_like(x), output_map.new_empty(output_map.shape)
        d_weight = torch.zeros_like(weight, dtype=at_least_fp32(x.dtype))
        d_bias = torch.zeros_like(bias, dtype=at_least_fp32(x.dtype))
        symmetric = d_grams + d_grams.mT
        for i in range(len(x)):
            phi, norm = _features(x[i], weight, bias, ctx.groups, None if mask is None else mask[i])
            torch.mm(phi.flatten(1).mT, d_tokens[i], out=d_output_map[i])
            d_phi = (d_tokens[i] @ output_map[i].mT).view_as(phi).to(symmetric.dtype)
            phi = phi.to(symmetric.dtype)
            if len(symmetric):
                d_phi.transpose(0, 1).baddbmm_(phi.transpose(0, 1), symmetric[i])
            radial = (d_phi * phi).sum(-1, keepdim=True)
            d_u = d_phi.addcmul_(phi, radial, value=-1).div_(norm)
            if mask is not None:
                d_u.mul_(mask[i][:, None, None])
            d_u = d_u.flatten(1)
            d_bias += d_u.sum(0)
            d_u = d_u.to(x.dtype)
            torch.mm(d_u, weight, out=d_x[i])
            d_weight += d_u.mT @ x[i]
        return d_x, d_weight.to(weight.dtype), d_bias.to(bias.dtype), d_output_map, None, None, None


def _features(
    x: Tensor, weight: Tensor, bias: Tensor, groups: int, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return phi (n, g, p) of one sample, and the norms (n, g, 1) that it was divided by."""
    u = torch.addmm(bias, x, weight.mT).unflatten(-1, (groups, -1))
    norm = torch.linalg.vector_norm(u, dim=-1, keepdim=True, dtype=at_least_fp32(u.dtype))
    norm = norm.clamp_min_(TINY)
    phi = u.div_(norm)
    return (phi if mask is None else phi.mul_(mask[:, None, None])), norm
