"""The map of `zoo.kernels.cosine_map` as an operator of PyTorch, computed by Triton kernels.

Differentiable once. Inputs are of one dtype, fp32 or half precision; sums are fp32. The operator
runs under `torch.compile`, and not under function transforms.

The kernels are in `zoo.kernels.cosine_map_triton`. Nothing of length n is stored but inputs and
outputs: features are recomputed in the backward pass. Sums over tokens are fp32 and deterministic:
each program adds up its tiles, in order, and the operator adds up the programs.
"""

# Triton's launches have no types that Python knows.
# pyright: reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

from math import ceil
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from zoo.kernels.cosine_map_triton import backward_parameters, backward_tokens, forward
from zoo.kernels.precision import TINY

TILE = 64  # Tokens of a tile
PROGRAMS = 256  # Programs of a launch that adds up over tokens, if there are as many tiles


@torch.library.custom_op("zoo::cosine_map", mutates_args=())
def cosine_map(
    x: Tensor, weight: Tensor, bias: Tensor, output_map: Tensor, output_bias: Tensor,
    groups: int, mask: Tensor | None, with_gram: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Tokens (b, n, d) and Gram matrices (b, g, p, p), or (0, g, p, p) without `with_gram`."""
    x, (segments, tiles) = x.contiguous(), _segments(x)
    shared = _arguments(x, weight, output_map, mask, groups, with_gram)
    tokens, width, block = torch.empty_like(x), len(weight) // groups, shared["WIDTH"]
    samples = len(x) if with_gram else 0
    grams = x.new_empty(samples, segments, groups, block, block, dtype=torch.float32)
    tensors = _contiguous(x, weight, bias, output_map)
    tensors += [output_bias, _bytes(x, mask), tokens, grams]
    forward[(len(x), segments)](*tensors, tiles=tiles, **shared)
    return tokens, grams[..., :width, :width].sum(1)


@torch.library.custom_op("zoo::cosine_map_backward", mutates_args=())
def cosine_map_backward(
    d_tokens: Tensor, d_grams: Tensor, x: Tensor, weight: Tensor, bias: Tensor, output_map: Tensor,
    mask: Tensor | None, groups: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of x, weight, bias and output_map."""
    x, (segments, tiles) = x.contiguous(), _segments(x)
    shared = _arguments(x, weight, output_map, mask, groups, bool(len(d_grams)))
    width, block, dim = len(weight) // groups, shared["WIDTH"], shared["DIM"]
    margin = block - width
    d_grams = torch.nn.functional.pad(d_grams + d_grams.mT, (0, margin, 0, margin))
    tensors = _contiguous(x, weight, bias, output_map)
    tensors += [_bytes(x, mask), d_tokens.contiguous(), d_grams]
    d_x, sums = torch.empty_like(x), (len(x), segments, groups, block)
    backward_tokens[(len(x), ceil(x.shape[1] / TILE))](*tensors, d_x, **shared)
    d_weight, d_map = x.new_empty(2, *sums, dim, dtype=torch.float32)
    d_bias = x.new_empty(sums, dtype=torch.float32)
    results = d_weight, d_bias, d_map
    backward_parameters[(len(x), segments, groups)](*tensors, *results, tiles=tiles, **shared)
    d_weight = d_weight.sum((0, 1))[:, :width, : x.shape[2]].reshape(weight.shape)
    d_bias = d_bias.sum((0, 1))[:, :width].reshape(bias.shape)
    d_map = d_map.sum((0, 1) if len(output_map) == 1 else 1)[..., :width, : x.shape[2]]
    d_map = d_map.reshape(output_map.shape)
    return d_x, d_weight.to(x.dtype), d_bias.to(x.dtype), d_map.to(x.dtype)


def _segments(x: Tensor) -> tuple[int, int]:
    tiles = ceil(x.shape[1] / TILE)
    each = ceil(tiles * len(x) / PROGRAMS)
    return ceil(tiles / each), each


def _contiguous(*tensors: Tensor) -> list[Tensor]:
    return [tensor.contiguous() for tensor in tensors]


def _bytes(x: Tensor, mask: Tensor | None) -> Tensor:
    # Without a mask any tensor, which the kernels do not read.
    return x if mask is None else mask.contiguous().view(torch.uint8)


def _arguments(
    x: Tensor, weight: Tensor, output_map: Tensor, mask: Tensor | None, groups: int, gram: bool
) -> dict[str, Any]:
    dim, width = x.shape[2], len(weight) // groups
    return {
        "n": x.shape[1],
        "d": dim,
        "p": width,
        "map_stride": 0 if len(output_map) == 1 else len(weight) * dim,
        "GROUPS": groups,
        "TILE": TILE,
        # 16: the narrowest block of a matrix product.
        "DIM": max(16, 1 << (dim - 1).bit_length()),
        "WIDTH": max(16, 1 << (width - 1).bit_length()),
        "TINY": TINY,
        "MASKED": mask is not None,
        "GRAM": gram,
    }


@cosine_map.register_fake
def _(*inputs: Any) -> tuple[Tensor, Tensor]:
    x, weight, _, _, _, groups, _, with_gram = inputs
    samples, width = x.shape[0] if with_gram else 0, weight.shape[0] // groups
    grams = x.new_empty(samples, groups, width, width, dtype=torch.float32)
    return x.new_empty(x.shape), grams


@cosine_map_backward.register_fake
def _(d_tokens: Tensor, d_grams: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    return tuple(part.new_empty(part.shape) for part in inputs[:4])


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, _, ctx.groups, mask, _ = inputs
    ctx.save_for_backward(*tensors, mask)


def _gradients(ctx: Any, d_tokens: Tensor, d_grams: Tensor) -> tuple[Tensor | None, ...]:
    gradients = cosine_map_backward(d_tokens, d_grams, *ctx.saved_tensors, ctx.groups)
    return *gradients, d_tokens.sum((0, 1)), None, None, None


cosine_map.register_autograd(_gradients, setup_context=_save)


@register_flop_formula(torch.ops.zoo.cosine_map)
def _forward_flops(*inputs: Any, **options: Any) -> int:
    (batch, n, dim), (features, _), _, _, _, groups, _, with_gram = inputs
    return 2 * batch * n * features * (2 * dim + with_gram * features // groups)


@register_flop_formula(torch.ops.zoo.cosine_map_backward)
def _backward_flops(d_tokens: Any, d_grams: Any, x: Any, weight: Any, *_: Any, **__: Any) -> int:
    # Both kernels compute the gradient of u, by three products, one with Gram matrices.
    (batch, n, dim), width = x, d_grams[-1] if d_grams[0] else 0
    return 2 * batch * n * weight[0] * (7 * dim + 2 * width)
