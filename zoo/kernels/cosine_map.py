"""The part of Primal-Attention of length n: maps tokens to tokens through unit features.

With u = x W^T + b in g groups (queries and keys of every head) and phi = u / ||u|| group by group:

    tokens = phi output_map + output_bias    (n, gp) times (gp, d); output_map may differ per sample
    gram_g = phi_g^T phi_g                   (p, p) for each group

`plain` is the definition, for which autograd stores u, its norms and phi: several copies of length
n. The gradient of the normalisation is du = (dphi - phi (phi . dphi)) / ||u||. `chunked` stores x,
phi and the norms. `fused` stores x alone, and computes phi again in the backward pass. Both are
differentiable once.

    chunked   runs eagerly, on a CPU, in chunks of tokens that stay in the cache
    fused     Triton kernels for CUDA, tile by tile
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Mask, Tokens, Unsupported
from zoo.kernels import eager
from zoo.kernels.precision import (
    TINY,
    at_least_fp32,
    full_precision,
    product_dtype,
    without_autocast,
)
from zoo.registry import in_one_line

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
    x: Tokens, parameters: Map, groups: int, mask: Mask | None, with_gram: bool, use_fused: bool
) -> tuple[Tokens, Grams]:
    """The tokens and the Gram matrices, by `fused` if chosen, else by the faster of the others.

    There is a Gram matrix for each sample and group, or none without `with_gram`.
    """
    compute = fused if use_fused else chunked if suits(x) else plain
    return compute(x, parameters, groups, mask, with_gram)


def plain(
    x: Tokens, parameters: Map, groups: int, mask: Mask | None, with_gram: bool
) -> tuple[Tokens, Grams]:
    # Padded tokens have zero features, so they enter no Gram matrix.
    weight, bias, output_map, output_bias = parameters
    phi = unit(F.linear(x, weight, bias).unflatten(-1, (groups, -1)), mask)
    return of_features(phi, output_map, output_bias, with_gram)


def chunked(
    x: Tokens, parameters: Map, groups: int, mask: Mask | None, with_gram: bool
) -> tuple[Tokens, Grams]:
    # In less memory, and from CHUNKED_FROM tokens on in less time.
    from zoo.kernels import cosine_map_chunked

    parameters = parameters._replace(output_map=parameters.output_map.expand(x.shape[0], -1, -1))
    return _in_one_dtype(cosine_map_chunked.cosine_map, x, parameters, groups, mask, with_gram)


def fused(
    x: Tokens, parameters: Map, groups: int, mask: Mask | None, with_gram: bool
) -> tuple[Tokens, Grams]:
    from zoo.kernels import cosine_map_fused

    return _in_one_dtype(cosine_map_fused.cosine_map, x, parameters, groups, mask, with_gram)


def _in_one_dtype(
    compute: Callable[..., tuple[Tensor, Tensor]], x: Tokens, parameters: Map, *options: Any
) -> tuple[Tokens, Grams]:
    tensors = [tensor.to(product_dtype(x)) for tensor in (x, *parameters)]
    with without_autocast(x):
        return compute(*tensors, *options)


def of_features(
    phi: Features, output_map: OutputMap, output_bias: OutputBias, with_gram: bool
) -> tuple[Tokens, Grams]:
    return affine(phi, output_map, output_bias), gram(phi if with_gram else phi[:0])


def affine(phi: Features, output_map: OutputMap, output_bias: OutputBias) -> Tokens:
    tokens = phi.flatten(2) @ output_map
    return tokens + output_bias.to(tokens.dtype)


def unit(u: Features, mask: Mask | None) -> Features:
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


def runs_fused(x: Tokens, groups: int, width: int, required: bool) -> bool:
    if torch.compiler.is_compiling() or not (required or x.is_cuda):
        # The compiler fuses `plain` itself, and cannot trace the trial.
        return required
    reason = triton_failure(x, groups, width)
    if reason and required:
        raise Unsupported(f"primal.backend=triton cannot run: {reason}; give backend=auto")
    return not reason


def require_fused(exists: bool) -> None:
    if not exists:
        raise Unsupported(
            "primal.backend=triton computes neither the causal form, nor a feature map other than "
            "cosine, nor rotary position embeddings, nor a short convolution; give backend=auto"
        )
    if reason := missing_for_triton():
        raise Unsupported(f"primal.backend=triton cannot run: {reason}; give backend=auto")


def triton_failure(x: Tokens, groups: int, width: int) -> str:
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
                parameters = Map(weight, bias, weight[None], x[0, 0])
                tokens, grams = fused(x, parameters, groups, None, True)
            (tokens.sum() + grams.sum()).backward()
    except Exception as error:
        # A width whose blocks exceed the memory of a multiprocessor, or an unknown device.
        return in_one_line(error)
    return ""


def missing_for_triton() -> str:
    if find_spec("triton") is None:
        return "triton is not installed (pip install triton)"
    if not (torch.cuda.is_available() or _interpreted()):
        return "its kernels need a CUDA device, and there is none"
    return ""


def _interpreted() -> bool:
    return import_module("triton").knobs.runtime.interpret
