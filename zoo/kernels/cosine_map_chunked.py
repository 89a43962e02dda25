"""The map of `zoo.kernels.cosine_map` on a CPU, in chunks of tokens that stay in the cache.

Stored for the backward pass are x, phi and the norms; the reasons are in
`docs/decisions/primal.md`.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from zoo.kernels import eager
from zoo.kernels.precision import TINY

CHUNK = 4096  # Tokens that are processed at once


def cosine_map(*inputs: Any) -> tuple[Tensor, Tensor]:
    """The result of `zoo.kernels.cosine_map.plain`, from its arguments one by one."""
    # All tensors have one dtype, fp64 or fp32; `output_map` is (b, gp, d).
    with_backward = torch.is_grad_enabled() and any(part.requires_grad for part in inputs[:5])
    return _Chunked.apply(*inputs, with_backward)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        x, weight, bias, output_map, output_bias, groups, mask, with_gram, with_backward = inputs
        width = len(weight) // groups
        tokens = x.new_empty(*x.shape[:2], output_map.shape[-1])
        # Without a backward pass all chunks share the memory of one.
        shape = x.shape[:2] if with_backward else _chunk_shape(x)
        features = x.new_empty(*shape, groups, width)
        norms = x.new_empty(*shape, groups)
        grams = x.new_zeros(len(x) if with_gram else 0, groups, width, width)
        for samples, chunk in _chunks(x):
            part = x[samples, chunk]
            size = tuple(map(slice, part.shape[:2]))
            index = (samples, chunk) if with_backward else size
            u, real = features[index], None if mask is None else mask[samples, chunk]
            torch.addmm(bias, part.flatten(0, 1), weight.mT, out=u.view(-1, len(weight)))
            _normalise(u, real, norms[index], grams[samples])
            for i, phi in zip(range(len(x))[samples], u, strict=True):
                torch.addmm(output_bias, phi.flatten(1), output_map[i], out=tokens[i, chunk])
        ctx.save_for_backward(x, weight, output_map, features, norms, bias)
        return tokens, grams

    @staticmethod
    @eager.differentiable_once("the map of primal")
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, saved: tuple[Any, ...], d_tokens: Tensor, d_grams: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, weight, output_map, features, norms, _ = saved
        d_x, d_bias = x.new_empty(x.shape), x.new_zeros(len(weight))
        d_output_map, d_weight = torch.zeros_like(output_map), torch.zeros_like(weight)
        d_grams = d_grams + d_grams.mT
        # Reused by all chunks: to allocate memory for each of them takes time.
        buffer = x.new_empty(_chunk_shape(x).numel(), *features.shape[2:])
        scratch = torch.empty_like(buffer)
        for samples, chunk in _chunks(x):
            rows, phi = x[samples, chunk].flatten(0, 1), features[samples, chunk]
            d_u = buffer[: len(rows)].view_as(phi)
            for i, phi_i, d_phi_i in zip(range(len(x))[samples], phi, d_u, strict=True):
                d_output_map[i] += phi_i.flatten(1).mT @ d_tokens[i, chunk]
                torch.mm(d_tokens[i, chunk], output_map[i].mT, out=d_phi_i.view(len(phi_i), -1))
            d_bias += _normalise_vjp(phi, norms[samples, chunk], d_grams[samples], d_u, scratch)
            d_u = d_u.view(len(rows), -1)
            torch.mm(d_u, weight, out=d_x[samples, chunk].view(rows.shape))
            d_weight += d_u.mT @ rows
        gradients = d_x, d_weight, d_bias, d_output_map, d_tokens.sum((0, 1))
        return *gradients, None, None, None, None


def _chunks(x: Tensor) -> Iterator[tuple[slice, slice]]:
    # Several samples, or a part of one.
    samples, tokens = _chunk_shape(x)
    # An empty batch has no chunk, of no sample.
    for i in range(0, len(x), samples or 1):
        for start in range(0, x.shape[1], tokens):
            yield slice(i, i + samples), slice(start, start + tokens)


def _chunk_shape(x: Tensor) -> torch.Size:
    return x[: max(1, CHUNK // x.shape[1]), :CHUNK].shape[:2]


def _normalise(u: Tensor, real: Tensor | None, norms: Tensor, grams: Tensor) -> None:
    # Replace `u` by its unit features; write its norms, and add to its Gram matrices, if any.
    torch.linalg.vector_norm(u, dim=-1, out=norms)
    norms.clamp_min_(TINY)
    if real is not None:
        # Padded tokens: what is divided by this norm, features and gradients, is zero.
        norms.masked_fill_(~real[..., None], torch.inf)
    u.div_(norms[..., None])
    for phi, gram in zip(u.transpose(1, 2), grams, strict=False):
        gram.baddbmm_(phi.mT, phi)


def _normalise_vjp(
    phi: Tensor, norms: Tensor, d_grams: Tensor, d_phi: Tensor, scratch: Tensor
) -> Tensor:
    # Replace `d_phi`, the gradient of tokens for phi, by the gradient for u; return its sum.
    # `d_grams` is the gradient for phi^T phi plus its transpose, of all samples or of none.
    for phi_i, d_phi_i, d_gram in zip(phi, d_phi, d_grams, strict=False):
        d_phi_i.transpose(0, 1).baddbmm_(phi_i.transpose(0, 1), d_gram)
    product = scratch[: phi.shape[:2].numel()].view_as(phi)
    radial = torch.mul(d_phi, phi, out=product).sum(-1, keepdim=True)
    d_phi.addcmul_(phi, radial, value=-1).div_(norms[..., None])
    return d_phi.sum((0, 1)).flatten()
