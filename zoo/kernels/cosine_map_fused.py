"""The map of `zoo.kernels.cosine_map` as an operator of PyTorch, computed by Triton kernels.

Differentiable once. Inputs are of one dtype, fp32 or half precision; sums are fp32. The operator
runs under `torch.compile`, and not under function transforms.

A program computes tiles of TILE tokens of one sample. Nothing of length n is stored but inputs and
outputs: features are recomputed in the backward pass. Sums over tokens are fp32 and deterministic:
each program adds up those of its own tiles, in order, and the caller adds up the programs.

Rows and columns past the widths d and p are zero. DIM and WIDTH are the widths of the blocks that
hold them, powers of two. Padded tokens, and those past n, have features and gradients of zero.
"""

# Triton's language has no types that Python knows.
# pyright: basic, reportArgumentType=false, reportIndexIssue=false, reportOperatorIssue=false

from math import ceil
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from zoo.kernels.precision import TINY

TILE = 64
"""Tokens of a tile."""

PROGRAMS = 256
"""Programs of a launch that adds up over tokens, if there are as many tiles."""


@torch.library.custom_op("zoo::cosine_map", mutates_args=())
def cosine_map(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    output_map: Tensor,
    output_bias: Tensor,
    groups: int,
    mask: Tensor | None,
    with_gram: bool,
) -> tuple[Tensor, Tensor]:
    """Tokens (b, n, d) and Gram matrices (b, g, p, p), or (0, g, p, p) without `with_gram`."""
    x, (segments, tiles) = x.contiguous(), _segments(x)
    shared = _arguments(x, weight, output_map, mask, groups, with_gram)
    tokens, width, block = torch.empty_like(x), len(weight) // groups, shared["WIDTH"]
    samples = len(x) if with_gram else 0
    grams = x.new_empty(samples, segments, groups, block, block, dtype=torch.float32)
    given = _given(x, weight, bias, output_map)
    results = [output_bias, _bytes(x, mask), tokens, grams]
    forward[(len(x), segments)](*given, *results, tiles=tiles, **shared)
    return tokens, grams[..., :width, :width].sum(1)


@torch.library.custom_op("zoo::cosine_map_backward", mutates_args=())
def cosine_map_backward(
    d_tokens: Tensor,
    d_grams: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    output_map: Tensor,
    mask: Tensor | None,
    groups: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, weight, bias and output_map."""
    x, (segments, tiles) = x.contiguous(), _segments(x)
    shared = _arguments(x, weight, output_map, mask, groups, bool(len(d_grams)))
    width, block, dim = len(weight) // groups, shared["WIDTH"], shared["DIM"]
    margin = block - width
    d_grams = torch.nn.functional.pad(d_grams + d_grams.mT, (0, margin, 0, margin))
    given = _given(x, weight, bias, output_map)
    given += [_bytes(x, mask), d_tokens.contiguous(), d_grams]
    d_x, sums = torch.empty_like(x), (len(x), segments, groups, block)
    backward_tokens[(len(x), ceil(x.shape[1] / TILE))](*[*given, d_x], **shared)
    d_weight, d_map = x.new_empty(2, *sums, dim, dtype=torch.float32)
    d_bias = x.new_empty(sums, dtype=torch.float32)
    backward_parameters[(len(x), segments, groups)](
        *[*given, d_weight, d_bias, d_map], tiles=tiles, **shared
    )
    d_weight = d_weight.sum((0, 1))[:, :width, : x.shape[2]].reshape(weight.shape)
    d_bias = d_bias.sum((0, 1))[:, :width].reshape(bias.shape)
    d_map = d_map.sum((0, 1) if len(output_map) == 1 else 1)[..., :width, : x.shape[2]]
    d_map = d_map.reshape(output_map.shape)
    return d_x, d_weight.to(x.dtype), d_bias.to(x.dtype), d_map.to(x.dtype)


def _segments(x: Tensor) -> tuple[int, int]:
    """The segments of each sample, and the tiles of a segment."""
    tiles = ceil(x.shape[1] / TILE)
    each = ceil(tiles * len(x) / PROGRAMS)
    return ceil(tiles / each), each


def _given(*tensors: Tensor) -> list[Tensor]:
    """The tensors as kernels read them."""
    return [tensor.contiguous() for tensor in tensors]


def _bytes(x: Tensor, mask: Tensor | None) -> Tensor:
    """The mask as bytes; without one any tensor, which the kernels do not read."""
    return x if mask is None else mask.contiguous().view(torch.uint8)


def _arguments(
    x: Tensor, weight: Tensor, output_map: Tensor, mask: Tensor | None, groups: int, gram: bool
) -> dict[str, Any]:
    """The arguments that all kernels have."""
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
    """The projection, the product with the map, and the Gram matrices; from shapes."""
    (batch, n, dim), (features, _), _, _, _, groups, _, with_gram = inputs
    return 2 * batch * n * features * (2 * dim + with_gram * features // groups)


@register_flop_formula(torch.ops.zoo.cosine_map_backward)
def _backward_flops(d_tokens: Any, d_grams: Any, x: Any, weight: Any, *_: Any, **__: Any) -> int:
    """Both kernels compute the gradient of u, by three products, one with Gram matrices."""
    (batch, n, dim), width = x, d_grams[-1] if d_grams[0] else 0
    return 2 * batch * n * weight[0] * (7 * dim + 2 * width)


@triton.jit
def load_tokens(tokens, sample, rows, columns, n, d):
    """A tile (TILE, DIM) of `tokens`, (b, n, d)."""
    inside = (rows < n)[:, None] & (columns < d)[None, :]
    start = tokens + sample.to(tl.int64) * n * d
    return tl.load(start + rows[:, None] * d + columns[None, :], mask=inside, other=0.0)


@triton.jit
def load_group(matrix, group, channels, columns, d, p):
    """The rows (WIDTH, DIM) of one group of `matrix`, (gp, d)."""
    inside = (channels < p)[:, None] & (columns < d)[None, :]
    rows = group * p + channels
    return tl.load(matrix + rows[:, None] * d + columns[None, :], mask=inside, other=0.0)


@triton.jit
def load_real(mask, sample, rows, n, MASKED: tl.constexpr):
    """Which tokens of a tile are real: within the sample and not padded."""
    real = rows < n
    if MASKED:
        padding = tl.load(mask + sample.to(tl.int64) * n + rows, mask=real, other=0)
        real = real & (padding != 0)
    return real


@triton.jit
def unit_features(x, weight, bias, group, channels, p, real, TINY: tl.constexpr):
    """Phi (TILE, WIDTH) of one group, and the reciprocal of its norms, zero where not real."""
    shift = tl.load(bias + group * p + channels, mask=channels < p, other=0.0)
    u = tl.dot(x, tl.trans(weight), input_precision="ieee") + shift.to(tl.float32)[None, :]
    norm = tl.sqrt(tl.sum(u * u, axis=1))
    scale = tl.where(real, 1.0 / tl.maximum(norm, TINY), 0.0)
    return tl.where(real[:, None], u * scale[:, None], 0.0), scale


@triton.jit
def projected_gradient(
    phi, scale, d_tokens, output_map, d_grams, at, WIDTH: tl.constexpr, GRAM: tl.constexpr
):
    """The gradient (TILE, WIDTH) of u, from those of tokens and of the Gram matrix at `at`."""
    d_phi = tl.dot(d_tokens, tl.trans(output_map), input_precision="ieee")
    if GRAM:
        block = tl.arange(0, WIDTH)
        gram = tl.load(d_grams + at * WIDTH * WIDTH + block[:, None] * WIDTH + block[None, :])
        d_phi += tl.dot(phi, gram, input_precision="ieee")
    radial = tl.sum(d_phi * phi, axis=1)
    return (d_phi - phi * radial[:, None]) * scale[:, None]


@triton.jit
def forward(
    x,
    weight,
    bias,
    output_map,
    output_bias,
    mask,
    tokens,
    grams,
    n,
    d,
    p,
    map_stride,
    tiles,
    GROUPS: tl.constexpr,
    TILE: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    TINY: tl.constexpr,
    MASKED: tl.constexpr,
    GRAM: tl.constexpr,
):
    """Output tokens, and the sums of Gram matrices (b, segments, g, WIDTH, WIDTH).

    Grid: (b, segments); a segment has `tiles` tiles.
    """
    sample, segment = tl.program_id(0), tl.program_id(1)
    columns, channels = tl.arange(0, DIM), tl.arange(0, WIDTH)
    block = channels[:, None] * WIDTH + channels[None, :]
    output_map += sample.to(tl.int64) * map_stride
    grams += (sample * tl.num_programs(1) + segment).to(tl.int64) * GROUPS * WIDTH * WIDTH
    for tile in range(tiles):
        rows = (segment * tiles + tile) * TILE + tl.arange(0, TILE)
        real = load_real(mask, sample, rows, n, MASKED)
        part = load_tokens(x, sample, rows, columns, n, d)
        shift = tl.load(output_bias + columns, mask=columns < d, other=0.0).to(tl.float32)
        total = tl.zeros((TILE, DIM), dtype=tl.float32) + shift[None, :]
        for group in range(GROUPS):
            rows_of_group = load_group(weight, group, channels, columns, d, p)
            phi, _ = unit_features(part, rows_of_group, bias, group, channels, p, real, TINY)
            phi = phi.to(part.dtype)
            map_of_group = load_group(output_map, group, channels, columns, d, p)
            total += tl.dot(phi, map_of_group, input_precision="ieee")
            if GRAM:
                gram = tl.dot(tl.trans(phi), phi, input_precision="ieee")
                own = grams + group * WIDTH * WIDTH + block
                if tile > 0:
                    gram += tl.load(own)
                tl.store(own, gram)
        if GRAM:
            # The next tile may read in other threads what this one has written.
            tl.debug_barrier()
        inside = (rows < n)[:, None] & (columns < d)[None, :]
        start = tokens + sample.to(tl.int64) * n * d
        at = start + rows[:, None] * d + columns[None, :]
        tl.store(at, total.to(tokens.dtype.element_ty), mask=inside)


@triton.jit
def backward_tokens(
    x,
    weight,
    bias,
    output_map,
    mask,
    d_tokens,
    d_grams,
    d_x,
    n,
    d,
    p,
    map_stride,
    GROUPS: tl.constexpr,
    TILE: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    TINY: tl.constexpr,
    MASKED: tl.constexpr,
    GRAM: tl.constexpr,
):
    """The gradient of x. `d_grams` is symmetric, (b, g, WIDTH, WIDTH). Grid: (b, tiles)."""
    sample = tl.program_id(0)
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    columns, channels = tl.arange(0, DIM), tl.arange(0, WIDTH)
    output_map += sample.to(tl.int64) * map_stride
    real = load_real(mask, sample, rows, n, MASKED)
    part = load_tokens(x, sample, rows, columns, n, d)
    d_part = load_tokens(d_tokens, sample, rows, columns, n, d)
    total = tl.zeros((TILE, DIM), dtype=tl.float32)
    for group in range(GROUPS):
        rows_of_group = load_group(weight, group, channels, columns, d, p)
        map_of_group = load_group(output_map, group, channels, columns, d, p)
        phi, scale = unit_features(part, rows_of_group, bias, group, channels, p, real, TINY)
        at = sample * GROUPS + group
        d_u = projected_gradient(phi, scale, d_part, map_of_group, d_grams, at, WIDTH, GRAM)
        total += tl.dot(d_u.to(part.dtype), rows_of_group, input_precision="ieee")
    inside = (rows < n)[:, None] & (columns < d)[None, :]
    start = d_x + sample.to(tl.int64) * n * d
    at = start + rows[:, None] * d + columns[None, :]
    tl.store(at, total.to(d_x.dtype.element_ty), mask=inside)


@triton.jit
def backward_parameters(
    x,
    weight,
    bias,
    output_map,
    mask,
    d_tokens,
    d_grams,
    d_weight,
    d_bias,
    d_output_map,
    n,
    d,
    p,
    map_stride,
    tiles,
    GROUPS: tl.constexpr,
    TILE: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    TINY: tl.constexpr,
    MASKED: tl.constexpr,
    GRAM: tl.constexpr,
):
    """Sums of the gradients of weight and map, (b, segments, g, WIDTH, DIM), and of the bias.

    Grid: (b, segments, g).
    """
    sample, segment, group = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    columns, channels = tl.arange(0, DIM), tl.arange(0, WIDTH)
    output_map += sample.to(tl.int64) * map_stride
    rows_of_group = load_group(weight, group, channels, columns, d, p)
    map_of_group = load_group(output_map, group, channels, columns, d, p)
    weights = tl.zeros((WIDTH, DIM), dtype=tl.float32)
    shifts = tl.zeros((WIDTH,), dtype=tl.float32)
    maps = tl.zeros((WIDTH, DIM), dtype=tl.float32)
    for tile in range(tiles):
        rows = (segment * tiles + tile) * TILE + tl.arange(0, TILE)
        real = load_real(mask, sample, rows, n, MASKED)
        part = load_tokens(x, sample, rows, columns, n, d)
        d_part = load_tokens(d_tokens, sample, rows, columns, n, d)
        phi, scale = unit_features(part, rows_of_group, bias, group, channels, p, real, TINY)
        at = sample * GROUPS + group
        d_u = projected_gradient(phi, scale, d_part, map_of_group, d_grams, at, WIDTH, GRAM)
        weights += tl.dot(tl.trans(d_u.to(part.dtype)), part, input_precision="ieee")
        shifts += tl.sum(d_u, axis=0)
        maps += tl.dot(tl.trans(phi.to(part.dtype)), d_part, input_precision="ieee")
    own = ((sample * tl.num_programs(1) + segment) * GROUPS + group).to(tl.int64)
    block = own * WIDTH * DIM + channels[:, None] * DIM + columns[None, :]
    tl.store(d_weight + block, weights)
    tl.store(d_output_map + block, maps)
    tl.store(d_bias + own * WIDTH + channels, shifts)
