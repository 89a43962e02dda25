"""Padding anywhere in a sample: real tokens moved to the front, and padded values set to zero.

A mechanism that depends on positions takes them to be ranks among the real tokens of a sample. With
the real tokens first, in their order, a sample with padding anywhere is one with padding at the
end. Time and memory O(n).
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from zoo.kernels.precision import full_precision


def real_tokens_first(mask: Bool[Tensor, "b n"]) -> tuple[Int[Tensor, "b n"], Int[Tensor, "b n"]]:
    """The permutation that puts real tokens first, in their order, and its inverse."""
    real = mask.cumsum(1)
    inverse = torch.where(mask, real, real[:, -1:] + (~mask).cumsum(1)) - 1
    tokens = torch.arange(mask.shape[1], device=mask.device).expand_as(inverse)
    return torch.zeros_like(inverse).scatter(1, inverse, tokens), inverse


def token_ranks(mask: Bool[Tensor, "b n"]) -> Int[Tensor, "b n"]:
    return (mask.cumsum(1) - 1).clamp_min(0)


def gather_tokens(
    tokens: Shaped[Tensor, "b *heads n d"], index: Int[Tensor, "b m"]
) -> Shaped[Tensor, "b *heads m d"]:
    batch, m = index.shape
    spread = index.reshape(batch, *(1 for _ in tokens.shape[1:-2]), m, 1)
    return tokens.gather(-2, spread.expand(*tokens.shape[:-2], m, tokens.shape[-1]))


def with_real_tokens_first(
    compute: Callable[..., Tensor], mask: Bool[Tensor, "b n"] | None, *inputs: Tensor
) -> Tensor:
    # `compute(*inputs, count)`, with `count` real tokens in each sample, or one number for all.
    if mask is None:
        return compute(*inputs, torch.full((1,), inputs[0].shape[-2], device=inputs[0].device))
    order, inverse = real_tokens_first(mask)
    ordered = [gather_tokens(tokens, order) for tokens in inputs]
    return gather_tokens(compute(*ordered, mask.sum(1)), inverse)


def last_tokens(
    tokens: Shaped[Tensor, "b *heads n d"], size: int, real: Bool[Tensor, "b m"] | None
) -> Shaped[Tensor, "b *heads s d"]:
    # Of samples whose last m tokens may end in padding. Where there are fewer, the first repeats.
    n = tokens.shape[-2]
    if real is None:
        return tokens[..., n - size :, :]
    index = n - size - (~real).sum(1, keepdim=True) + torch.arange(size, device=real.device)
    return gather_tokens(tokens, index.clamp_min(0))


def positions_after(count: Int[Tensor, " b"], n: int) -> Int[Tensor, "b n"]:
    return count[:, None] + torch.arange(n, device=count.device)


def count_after(
    count: Int[Tensor, " b"], n: int, real: Bool[Tensor, "b n"] | None
) -> Int[Tensor, " b"]:
    return count + (n if real is None else real.sum(1))


def zero_padding(
    x: Float[Tensor, "b *heads n e"], mask: Bool[Tensor, "b n"] | None
) -> Float[Tensor, "b *heads n e"]:
    # With a gradient of zero there, whatever they hold.
    if mask is None:
        return x
    heads = (None,) * (x.ndim - 3)
    # Faster on a CPU than `masked_fill`.
    return torch.where(mask[:, *heads, :, None], x, 0.0)


def running_mean(
    u: Float[Tensor, "b n d"], mask: Bool[Tensor, "b n"] | None
) -> Float[Tensor, "b n d"]:
    # fp32: a running sum overflows half precision within a few thousand tokens.
    with full_precision(u) as (total,):
        if mask is None:
            count = torch.arange(1, u.shape[1] + 1, device=u.device)[None]
        else:
            total = total * mask[..., None]
            count = mask.cumsum(1).clamp_min(1)
        return (total.cumsum(1) / count[..., None]).to(u.dtype)
