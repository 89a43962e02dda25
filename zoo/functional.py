"""Variants as functions of queries, keys and values, under the signature of PyTorch's attention.

    zoo.functional.linear(q, k, v, is_causal=True)
    zoo.functional.local(q, k, v, mask=real, window=32)

Every registered variant is a name here, with `_` for `-`; `attention` documents the arguments. A
variant that needs more than queries, keys and values raises `Unsupported`. Random features are
drawn from seed 0: they are the same in every call.
"""

import sys
from collections.abc import Callable
from functools import lru_cache, partial
from inspect import unwrap
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Size, Unsupported, variants
from zoo.kernels.precision import backward_without_autocast
from zoo.kernels.real_tokens import zero_padding
from zoo.packed import Packed
from zoo.projected import ProjectedAttention
from zoo.registry import UserError, Value, checked, resolve, unknown
from zoo.size import require_mask, require_segments

Options = tuple[tuple[str, Value], ...]
Cores = Callable[[bool], ProjectedAttention]
"""Gives the causal form of the layer that computes the heads, or the other one."""


def __getattr__(name: str) -> Callable[..., Tensor]:
    names = {} if name.startswith("__") else {n.replace("-", "_"): n for n in variants.names()}
    if name not in names:
        message = unknown("attention variant", name, names)
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    # A name is looked for once: to list the variants takes as long as attention.
    return globals().setdefault(name, partial(attention, names[name]))


@checked
def attention(
    variant: str, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False, *, mask: Tensor | None = None, segments: Tensor | None = None,
    max_len: int | None = None, **options: Value,
) -> Tensor:  # fmt: skip
    """The output of each query, (b, h, n, e), as `scaled_dot_product_attention` returns it.

    Args:
        variant: a registered name.
        query: (b, h, n, e).
        key: (b, h, m, e); with `enable_gqa` the number of heads may divide h.
        value: as `key`.
        attn_mask: boolean, broadcast to (b, h, n, m), True = attend: padding of keys, causal or
            not.
        dropout_p: probability of dropping a weight; above 0 the variant is in training mode.
        is_causal: whether query i attends to keys 0..i only; then n is m.
        scale: of the products q . k. None for 1 / sqrt(e), where a variant gets the queries as they
            are; otherwise they are multiplied by scale sqrt(e).
        enable_gqa: whether groups of heads share keys and values.
        mask: real keys, (b, m), in place of `attn_mask`.
        segments: the sequence of each token in packed rows, (b, n); see `zoo.packed`.
        max_len: of the layer, which scales the positions of some variants; None for m.
        **options: options of the variant.
    """
    if query.ndim != 4 or key.ndim != 4:
        shapes = f"query has shape {tuple(query.shape)} and key {tuple(key.shape)}"
        raise UserError(f"{shapes}; give (batch, heads, tokens, width)")
    (_, heads, n, width), m = query.shape, key.shape[2]
    if attn_mask is not None:
        if mask is not None:
            raise UserError("attn_mask and mask are both set; give one of them")
        masked, mask = read_mask(attn_mask, query, key)
        is_causal = is_causal or masked
    if is_causal and n != m:
        raise Unsupported(f"causal {variant} got {n} queries and {m} keys; give as many of both")
    if enable_gqa:
        if not (groups := key.shape[1]) or heads % groups or value.shape[1:2] != key.shape[1:2]:
            raise UserError(f"{heads} heads of queries are no multiple of {groups} of keys and "
                            "values; give a number that divides it")  # fmt: skip
        key, value = (part.repeat_interleave(heads // groups, 1) for part in (key, value))
    shape = heads, width, m if max_len is None else max_len
    chosen = tuple(sorted(options.items()))
    core = build(variant, chosen, shape, dropout_p, dropout_p > 0, query.device, is_causal)
    return compute(core, query, key, value, mask, scale, segments)


def projected_variant(name: str) -> type[ProjectedAttention]:
    variant = variants.find(name)
    inherited = ("forward", "_project", "_heads")
    if (
        not issubclass(variant, ProjectedAttention)
        or variant.shared_qk
        or any(
            unwrap(getattr(variant, part)) != unwrap(getattr(ProjectedAttention, part))
            for part in inherited
        )
    ):
        raise Unsupported(f"{name} is no function of queries, keys and values; build the layer, "
                          f"with its projections, by zoo.create({name!r}, ...)")  # fmt: skip
    return variant


def require_dropout(variant: type[ProjectedAttention], name: str, dropout: float) -> None:
    if dropout and not variant.drops_weights:
        raise Unsupported(f"{name} drops no weights; set the dropout {dropout} of attention to 0")


@lru_cache(maxsize=64)
def build(
    name: str, options: Options, shape: tuple[int, int, int], dropout: float, training: bool,
    device: torch.device, causal: bool,
) -> ProjectedAttention:  # fmt: skip
    # `shape` is the number of heads, their width, and `max_len`; the same layer for equal
    # arguments.
    variant, (heads, width, max_len) = projected_variant(name), shape
    require_dropout(variant, name, dropout)
    if causal and "causality" in variant.expected_failures_of(causal=True):
        raise Unsupported(f"{name} is known to fail the check of causality; choose another variant")
    size = Size(dim=heads * width, heads=heads, max_len=max_len, causal=causal, dropout=dropout)
    # No inference tensor, as the result is kept; no effect on the default generator.
    with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        layer = variant(size, **resolve(name, variant, dict(options)))
    del layer.context, layer.out
    layer.to(device).train(training).query.to("meta")  # for its width
    parameters = [parameter for parameter, _ in layer.named_parameters()]
    if learned := ", ".join(name for name in parameters if not name.startswith("query.")):
        raise Unsupported(
            f"{name} has parameters other than its projections ({learned}); put the layer into the "
            f"model by zoo.replace or zoo.create({name!r}, ...)"
        )
    return layer


def compute(
    core: ProjectedAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None,
    scale: float | None, segments: Tensor | None = None,
) -> Tensor:  # fmt: skip
    if mask is not None:
        require_mask(mask, k[:, 0])
    if segments is not None:
        core.require_padding(causal=core.size.causal)
        require_segments(segments, q[:, 0], mask)
        if (n := q.shape[2]) != (m := k.shape[2]):
            raise Unsupported(f"{core.name()} got segments, {n} queries and {m} keys; give as many "
                              "of both")  # fmt: skip
        rows, one = Packed(segments, mask), partial(compute, core, scale=scale)
        return rows.join([one(*map(p.of, (q, k, v)), mask=p.mask) for p in rows.parts])
    require_heads(core, q, k, v)
    inputs, width = (q, k, v), q.shape[3]
    if mask is not None:
        core.require_padding(causal=core.size.causal)
        k, v = zero_padding(k, mask), zero_padding(v, mask)
        # With cross-attention queries are read at all positions, as in PyTorch.
        q = q if core.traits.cross else zero_padding(q, mask)
    if scale is not None and scale != width**-0.5:
        q = q * (scale * width**0.5)
    out = core.attend_in_precision(q, k, v, mask)
    backward_without_autocast([out], inputs)
    return out


def require_heads(core: ProjectedAttention, q: Tensor, k: Tensor, v: Tensor) -> None:
    (b, h, n, e), m, inputs = q.shape, k.shape[2], (q, k, v)
    dtypes = {part.dtype for part in inputs}
    several = len(dtypes) > 1 and not torch.is_autocast_enabled(q.device.type)
    if several or not all(dtype.is_floating_point for dtype in dtypes):
        raise UserError(f"queries, keys, values have dtypes {q.dtype}, {k.dtype}, {v.dtype}; give "
                        "floating-point ones of one dtype")  # fmt: skip
    if len(devices := {part.device for part in inputs}) > 1 or q.device.type == "meta":
        raise UserError(f"queries, keys, values are on {', '.join(sorted(map(str, devices)))}; "
                        "give numbers on one device")  # fmt: skip
    if not k.shape == v.shape == (b, h, m, e):
        shapes = ", ".join(str(tuple(part.shape)) for part in inputs)
        raise UserError(f"queries, keys, values have shapes {shapes}; give equal ones, but for the "
                        "tokens of the queries")  # fmt: skip
    if h * e != (width := core.query.out_features):
        raise UserError(f"{core.name()} with these options has {width} channels of queries, "
                        f"and not {h * e}; set its option of their width")  # fmt: skip
    if m > core.size.max_len:
        raise UserError(f"{m} keys are more than max_len={core.size.max_len}; truncate them")
    if n != m and not core.traits.cross:
        raise Unsupported(f"{core.name()} has no cross-attention: {n} queries, {m} keys; give "
                          "equal ones")  # fmt: skip


def read_mask(allowed: Tensor, query: Tensor, key: Tensor) -> tuple[bool, Tensor]:
    # The mask is broadcast to (b, h, n, m); the real keys are (b, m).
    b, _, n, m = shape = *query.shape[:3], key.shape[2]
    if allowed.dtype != torch.bool:
        raise Unsupported(f"a mask of dtype {allowed.dtype} may add a bias to the products; give a "
                          "boolean mask, True = attend")  # fmt: skip
    allowed = allowed[(None,) * (4 - allowed.ndim)]
    fits = allowed.ndim == 4 and all(
        got in (1, size) for got, size in zip(allowed.shape, shape, strict=True)
    )
    if not fits:
        raise UserError(f"a mask of shape {tuple(allowed.shape)} does not broadcast to {shape}")
    for causal in (False, True):
        if (real := padding_of(allowed, n, causal)) is not None:
            return causal, real.expand(b, m)
    kind = "differs between heads" if allowed.shape[1] > 1 else "is not padding, causal or not"
    raise Unsupported(f"a mask of shape {tuple(allowed.shape)} {kind}; use PyTorch's attention")


def padding_of(
    allowed: Bool[Tensor, "#b #h #n m"], n: int, causal: bool
) -> Bool[Tensor, "#b m"] | None:
    # The n queries of a causal mask are the last of the m tokens.
    m, real = allowed.shape[3], allowed[:, :1, -1:]
    past = torch.ones(n if causal else 1, m, dtype=torch.bool, device=allowed.device)
    expected = real & past.tril(m - n) if causal else real
    return real[:, 0, 0] if bool((allowed == expected).all()) else None


def single(cores: Cores, *heads: Any) -> Tensor:
    # Equal to the causal form where no weight depends on positions.
    return compute(cores(False), *heads)


def padded(cores: Cores, q: Tensor, k: Tensor, *rest: Any) -> Tensor:
    # With queries of 0 before the last ones.
    n, m = q.shape[2], k.shape[2]
    return compute(cores(True), F.pad(q, (0, 0, m - n, 0)), k, *rest)[:, :, -n:]


@lru_cache(maxsize=64)
def way_of_last(
    variant: str, options: Options, shape: tuple[int, int, int], one_query: bool
) -> Callable[..., Tensor]:
    # The outputs of the last queries, from them and all keys; by trial on random ones.
    generator, n = torch.Generator().manual_seed(0), 1 if one_query else 2
    tokens = min(150, shape[2])
    size = 3, 2, shape[0], tokens, shape[1]
    q, k, v = torch.randn(size, generator=generator, dtype=torch.float64)
    mask = torch.arange(tokens) >= torch.tensor([[0], [tokens // 3]])
    cores = partial(build, variant, options, shape, 0.0, False, torch.device("cpu"))
    expected = compute(cores(True), q, k, v, mask, None)[:, :, -n:]
    for way in (single, padded) if one_query else (padded,):
        try:
            actual = way(cores, q[:, :, -n:], k, v, mask, None)
        except Unsupported:
            continue
        if torch.allclose(actual, expected, rtol=1e-9, atol=1e-9):
            return way
    raise Unsupported(f"a cache holds no earlier queries, which {variant} needs; choose another")
