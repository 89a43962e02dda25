"""The kernels of `zoo.kernels.cosine_map_fused`, in Triton.

A program computes tiles of TILE tokens of one sample. Rows and columns past the widths d and p are
zero. DIM and WIDTH are the widths of the blocks that hold them, powers of two. Padded tokens, and
those past n, have features and gradients of zero.
"""

# Triton's language has no types that Python knows.
# pyright: basic, reportArgumentType=false, reportIndexIssue=false, reportOperatorIssue=false

import triton
import triton.language as tl


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
    """The gradient (TILE, WIDTH) of u; `at` is the group of the sample in `d_grams`."""
    d_phi = tl.dot(d_tokens, tl.trans(output_map), input_precision="ieee")
    if GRAM:
        block = tl.arange(0, WIDTH)
        gram = tl.load(d_grams + at * WIDTH * WIDTH + block[:, None] * WIDTH + block[None, :])
        d_phi += tl.dot(phi, gram, input_precision="ieee")
    radial = tl.sum(d_phi * phi, axis=1)
    return (d_phi - phi * radial[:, None]) * scale[:, None]


@triton.jit
def forward(
    x, weight, bias, output_map, output_bias, mask, tokens, grams, n, d, p, map_stride, tiles,
    GROUPS: tl.constexpr, TILE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    TINY: tl.constexpr, MASKED: tl.constexpr, GRAM: tl.constexpr,
):  # fmt: skip
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
                gram_at = grams + group * WIDTH * WIDTH + block
                if tile > 0:
                    gram += tl.load(gram_at)
                tl.store(gram_at, gram)
        if GRAM:
            # The next tile may read in other threads what this one has written.
            tl.debug_barrier()
        inside = (rows < n)[:, None] & (columns < d)[None, :]
        start = tokens + sample.to(tl.int64) * n * d
        at = start + rows[:, None] * d + columns[None, :]
        tl.store(at, total.to(tokens.dtype.element_ty), mask=inside)


@triton.jit
def backward_tokens(
    x, weight, bias, output_map, mask, d_tokens, d_grams, d_x, n, d, p, map_stride,
    GROUPS: tl.constexpr, TILE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    TINY: tl.constexpr, MASKED: tl.constexpr, GRAM: tl.constexpr,
):  # fmt: skip
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
    x, weight, bias, output_map, mask, d_tokens, d_grams, d_weight, d_bias, d_output_map,
    n, d, p, map_stride, tiles,
    GROUPS: tl.constexpr, TILE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    TINY: tl.constexpr, MASKED: tl.constexpr, GRAM: tl.constexpr,
):  # fmt: skip
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
    sums_at = ((sample * tl.num_programs(1) + segment) * GROUPS + group).to(tl.int64)
    block = sums_at * WIDTH * DIM + channels[:, None] * DIM + columns[None, :]
    tl.store(d_weight + block, weights)
    tl.store(d_output_map + block, maps)
    tl.store(d_bias + sums_at * WIDTH + channels, shifts)
