"""The part of Primal-Attention of length n: maps tokens to tokens through unit features.

With u = x W^T + b in g groups (queries and keys of every head) and phi = u / ||u|| group by group:

    tokens = phi output_map + output_bias    (n, gp) times (gp, d); output_map may differ per sample
    gram_g = phi_g^T phi_g                   (p, p) for each group

`plain` is the definition, for which autograd stores u, its norms and phi: several copies of length
n. The gradient of the normalisation is du = (dphi - phi (phi . dphi)) / ||u||. `chunked` stores x,
phi and the norms. `fused` stores x alone, and computes phi again in the backward pass. Both are
differentiable once.

    chunked   runs eagerly, on a CPU, in chunks of tokens that stay in the cache; what is not a
              product of long matrices are loops that numba compiles
    fused     Triton kernels for CUDA, tile by tile
"""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from math import prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from zoo.contract import Mask, Tokens
from zoo.kernels import eager
from zoo.kernels.precision import TINY, at_least_fp32, full_precision, product_dtype
from zoo.kernels.threads import as_array, share
from zoo.registry import in_one_line

CHUNKED_FROM = 512
"""Tokens of a sample from which `chunked` is faster on a CPU; below, its loop over samples costs
more than it saves: forward and backward of 64 samples of 64 tokens take 1.4 times as long."""

CHUNK = 4096
"""Tokens that `chunked` processes at once."""

Weight = Float[Tensor, "gp d"]
Bias = Float[Tensor, " gp"]
OutputMap = Float[Tensor, "#b gp d"]
OutputBias = Float[Tensor, " d"]
Features = Float[Tensor, "b n g p"]
Grams = Float[Tensor, "samples g p p"]


def plain(
    x: Tokens,
    weight: Weight,
    bias: Bias,
    output_map: OutputMap,
    output_bias: OutputBias,
    groups: int,
    mask: Mask | None,
    with_gram: bool,
) -> tuple[Tokens, Grams]:
    """The definition. Padded tokens have zero features, so they enter no Gram matrix.

    There is a Gram matrix for each sample and group, or none without `with_gram`.
    """
    phi = unit(F.linear(x, weight, bias).unflatten(-1, (groups, -1)), mask)
    return affine(phi, output_map, output_bias), gram(phi if with_gram else phi[:0])


def affine(phi: Features, output_map: OutputMap, output_bias: OutputBias) -> Tokens:
    """Return phi output_map + output_bias."""
    tokens = phi.flatten(2) @ output_map
    return tokens + output_bias.to(tokens.dtype)


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


def suits(x: Tokens) -> bool:
    """Whether `chunked` can run for these tokens, and takes less time than `plain`."""
    # Its loops have no form for fp16.
    compiled = product_dtype(x) is not torch.float16
    return compiled and x.shape[1] >= CHUNKED_FROM and eager.on_cpu(x)


def chunked(
    x: Tokens,
    weight: Weight,
    bias: Bias,
    output_map: OutputMap,
    output_bias: OutputBias,
    groups: int,
    mask: Mask | None,
    with_gram: bool,
) -> tuple[Tokens, Grams]:
    """The result of `plain`, in less memory and time: `python -m benchmarks layer`."""
    output_map = output_map.expand(len(x), -1, -1)
    given = (x, weight, bias, output_map, output_bias)
    given = [part.to(product_dtype(x)) for part in given]
    with torch.autocast(x.device.type, enabled=False):
        with_backward = torch.is_grad_enabled() and any(part.requires_grad for part in given)
        return _Chunked.apply(*given, groups, mask, with_gram, with_backward)


def fused(
    x: Tokens,
    weight: Weight,
    bias: Bias,
    output_map: OutputMap,
    output_bias: OutputBias,
    groups: int,
    mask: Mask | None,
    with_gram: bool,
) -> tuple[Tokens, Grams]:
    """The result of `plain`, from the kernels in `cosine_map_fused`; see `triton_failure`."""
    from zoo.kernels import cosine_map_fused

    given = (x, weight, bias, output_map, output_bias)
    given = [part.to(product_dtype(x)) for part in given]
    return cosine_map_fused.cosine_map(*given, mask, groups, with_gram)


def triton_failure(x: Tokens, groups: int, width: int) -> str:
    """Why `fused` fails for tokens of this device, dtype and width; empty where it succeeds."""
    if eager.transformed():
        return "its kernels have no form for function transforms"
    return _trial_failure(x.device, product_dtype(x), x.shape[-1], groups, width)


@cache
def _trial_failure(
    device: torch.device, dtype: torch.dtype, dim: int, groups: int, width: int
) -> str:
    if reason := missing_for_triton():
        return reason
    if device.type != "cuda" and not _interpreted():
        return f"its kernels need a CUDA device, and the tokens are on {device}"
    if dtype == torch.bfloat16 and _interpreted():
        return "triton's interpreter has no matrix products of bfloat16"
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"its kernels add up in fp32, and the tokens are {dtype}"
    try:
        with torch.inference_mode(False), torch.enable_grad():
            x = torch.zeros(1, 8, dim, dtype=dtype, device=device, requires_grad=True)
            weight, bias = x.new_zeros(groups * width, dim), x.new_zeros(groups * width)
            with torch.autocast(device.type, enabled=False):
                tokens, grams = fused(x, weight, bias, weight[None], x[0, 0], groups, None, True)
            (tokens.sum() + grams.sum()).backward()
    except Exception as error:
        # A width whose blocks exceed the memory of a multiprocessor, or an unknown device.
        return in_one_line(error)
    return ""


def missing_for_triton() -> str:
    """What the kernels of `fused` lack on this machine; empty where they can run."""
    if find_spec("triton") is None:
        return "triton is not installed (pip install triton)"
    if not (torch.cuda.is_available() or _interpreted()):
        return "its kernels need a CUDA device, and there is none"
    return ""


def _interpreted() -> bool:
    """Whether triton interprets kernels, on a CPU: TRITON_INTERPRET=1."""
    return import_module("triton").knobs.runtime.interpret


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        # Compilers take a while to import.
        from zoo.kernels import cosine_map_loops as loops

        x, weight, bias, output_map, output_bias, groups, mask, with_gram, with_backward = inputs
        sum_dtype, width = at_least_fp32(x.dtype), len(weight) // groups
        tokens = x.new_empty(*x.shape[:2], output_map.shape[-1])
        # Without a backward pass all chunks share the memory of one.
        shape = x.shape[:2] if with_backward else _chunk_shape(x)
        features = x.new_empty(*shape, groups, width)
        norms = x.new_empty(*shape, groups, dtype=sum_dtype)
        grams = x.new_zeros(len(x) if with_gram else 0, groups, width, width, dtype=sum_dtype)
        tiny = np.asarray(TINY, as_array(norms).dtype)[()]
        all_real = x.new_ones(_chunk_shape(x), dtype=torch.bool)
        for samples, chunk in _chunks(x):
            part = x[samples, chunk]
            size = tuple(map(slice, part.shape[:2]))
            index = (samples, chunk) if with_backward else size
            u, real = features[index], all_real[size] if mask is None else mask[samples, chunk]
            torch.addmm(bias, part.flatten(0, 1), weight.mT, out=u.view(-1, len(weight)))
            blocks = len(part), loops.blocks(part.shape[1])
            sums = grams.new_empty(len(grams[samples]), blocks[1], *grams.shape[1:])
            arrays = map(as_array, (u, real.contiguous(), norms[index], sums))
            share(loops.normalise, prod(blocks), 1, *arrays, tiny)
            grams[samples] += sums.sum(1)
            for i, phi in zip(range(len(x))[samples], u, strict=True):
                torch.addmm(output_bias, phi.flatten(1), output_map[i], out=tokens[i, chunk])
        ctx.save_for_backward(x, weight, output_map, features, norms)
        return tokens, grams

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, d_tokens: Tensor, d_grams: Tensor
    ) -> tuple[Tensor | None, ...]:
        from zoo.kernels import cosine_map_loops as loops

        x, weight, output_map, features, norms = ctx.saved_tensors
        d_x, sum_dtype = x.new_empty(x.shape), norms.dtype
        d_output_map = torch.zeros_like(output_map, dtype=sum_dtype)
        d_weight = torch.zeros_like(weight, dtype=sum_dtype)
        d_bias = x.new_zeros(len(weight), dtype=sum_dtype)
        # The matrices are padded with zeros to whole vector instructions.
        missing = -d_grams.shape[-1] % loops.LANES
        d_grams = F.pad(d_grams + d_grams.mT, (0, missing, 0, missing))
        # Reused by all chunks: to allocate memory for each of them takes time.
        buffer = x.new_empty(_chunk_shape(x).numel(), *features.shape[2:])
        for samples, chunk in _chunks(x):
            rows, phi = x[samples, chunk].flatten(0, 1), features[samples, chunk]
            d_u = buffer[: len(rows)].view_as(phi)
            for i, phi_i, d_phi_i in zip(range(len(x))[samples], phi, d_u, strict=True):
                d_output_map[i] += phi_i.flatten(1).mT @ d_tokens[i, chunk]
                torch.mm(d_tokens[i, chunk], output_map[i].mT, out=d_phi_i.view(len(phi_i), -1))
            blocks = len(phi), loops.blocks(phi.shape[1])
            sums = norms.new_zeros(*blocks, *phi.shape[2:])
            arrays = map(as_array, (phi, norms[samples, chunk], d_grams[samples], d_u, sums))
            share(loops.normalise_gradient, prod(blocks), 1, *arrays)
            d_bias += sums.sum((0, 1)).flatten()
            d_u = d_u.view(len(rows), -1)
            torch.mm(d_u, weight, out=d_x[samples, chunk].view(rows.shape))
            d_weight += d_u.mT @ rows
        d_output_bias = d_tokens.sum((0, 1), dtype=sum_dtype)
        gradients = (d_weight, d_bias, d_output_map, d_output_bias)
        return d_x, *(part.to(x.dtype) for part in gradients), None, None, None, None


def _chunks(x: Tensor) -> Iterator[tuple[slice, slice]]:
    """Samples and tokens of every chunk: several samples, or a part of one."""
    samples, tokens = _chunk_shape(x)
    # An empty batch has no chunk, of no sample.
    for i in range(0, len(x), samples or 1):
        for start in range(0, x.shape[1], tokens):
            yield slice(i, i + samples), slice(start, start + tokens)


def _chunk_shape(x: Tensor) -> torch.Size:
    """Samples and tokens of the largest chunk: CHUNK tokens in all at most."""
    return x[: max(1, CHUNK // x.shape[1]), :CHUNK].shape[:2]
