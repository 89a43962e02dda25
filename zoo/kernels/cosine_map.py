"""The part of Primal-Attention of length n: maps tokens to tokens through unit features.

With u = x W^T + b in g groups (queries and keys of every head) and phi = u / ||u|| group by group:

    tokens = phi output_map + output_bias    (n, gp) times (gp, d); output_map may differ per sample
    gram_g = phi_g^T phi_g                   (p, p) for each group

`plain` is the definition, for which autograd stores u, its norms and phi: several copies of length
n. The gradient of the normalisation is du = (dphi - phi (phi . dphi)) / ||u||. `chunked` stores x,
phi and the norms: eagerly, on a CPU, in chunks of tokens that stay in the cache. It is
differentiable once.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Mask, Tokens
from zoo.kernels import eager
from zoo.kernels.precision import (
    TINY,
    at_least_fp32,
    full_precision,
    product_dtype,
    without_autocast,
)

# Tokens of a sample from which `chunked` is faster on a CPU; below, its loop over samples costs
# more than it saves: forward and backward of 64 samples of 64 tokens take 1.4 times as long.
CHUNKED_FROM = 512

Weight = Float[Tensor, "gp d"]
Bias = Float[Tensor, " gp"]
OutputMap = Float[Tensor, "#b gp d"]
OutputBias = Float[Tensor, " d"]
Features = Float[Tensor, "b n g p"]
Grams = Float[Tensor, "samples g p p"]


class Map(NamedTuple):
    weight: Weight
    bias: Bias
    output_map: OutputMap
    output_bias: OutputBias


def apply(
    x: Tokens, parameters: Map, groups: int, mask: Mask, with_gram: bool
) -> tuple[Tokens, Grams]:
    """The tokens and the Gram matrices, by the faster of `chunked` and `plain`."""
    # There is a Gram matrix for each sample and group, or none without `with_gram`.
    return (chunked if suits(x) else plain)(x, parameters, groups, mask, with_gram)


def plain(
    x: Tokens, parameters: Map, groups: int, mask: Mask, with_gram: bool
) -> tuple[Tokens, Grams]:
    # Padded tokens have zero features, so they enter no Gram matrix.
    weight, bias, output_map, output_bias = parameters
    phi = unit(F.linear(x, weight, bias).unflatten(-1, (groups, -1)), mask)
    return affine(phi, output_map, output_bias), gram(phi if with_gram else phi[:0])


def chunked(
    x: Tokens, parameters: Map, groups: int, mask: Mask, with_gram: bool
) -> tuple[Tokens, Grams]:
    from zoo.kernels import cosine_map_chunked

    parameters = parameters._replace(output_map=parameters.output_map.expand(x.shape[0], -1, -1))
    tensors = [tensor.to(product_dtype(x)) for tensor in (x, *parameters)]
    with without_autocast(x):
        return cosine_map_chunked.cosine_map(*tensors, groups, mask, with_gram)


def affine(phi: Features, output_map: OutputMap, output_bias: OutputBias) -> Tokens:
    tokens = phi.flatten(2) @ output_map
    return tokens + output_bias.to(tokens.dtype)


def unit(u: Features, mask: Mask) -> Features:
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
    # `chunked` can run for these tokens, and takes less time than `plain`.
    # Sums of half precision are fp32, which its products would not give.
    supported = product_dtype(x) in (torch.float32, torch.float64)
    return supported and eager.on_cpu(x) and x.shape[1] >= CHUNKED_FROM
