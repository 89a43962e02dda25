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
    """The number of real tokens before each of the real ones."""
    return (mask.cumsum(1) - 1).clamp_min(0)


def gather_tokens(
    tokens: Shaped[Tensor, "b *heads n d"], index: Int[Tensor, "b n"]
) -> Shaped[Tensor, "b *heads n d"]:
    """Token `index[i]` of each sample at position i."""
    batch, n = index.shape
    spread = index.reshape(batch, *(1 for _ in tokens.shape[1:-2]), n, 1)
    return tokens.gather(-2, spread.expand_as(tokens))


def with_real_tokens_first(
    compute: Callable[..., Tensor], mask: Bool[Tensor, "b n"] | None, *inputs: Tensor
) -> Tensor:
    """`compute(*inputs, count)` on samples with real tokens first; the result in the given order.

    `count` is the number of real tokens of each sample, or one number for all without a mask.
    """
    if mask is None:
        return compute(*inputs, torch.full((1,), inputs[0].shape[-2], device=inputs[0].device))
    order, inverse = real_tokens_first(mask)
    ordered = [gather_tokens(tokens, order) for tokens in inputs]
    return gather_tokens(compute(*ordered, mask.sum(1)), inverse)


def zero_padding(
    x: Float[Tensor, "b h n e"], mask: Bool[Tensor, "b n"] | None
) -> Float[Tensor, "b h n e"]:
    """`x` with zeros at padded tokens."""
    return x if mask is None else x.masked_fill(~mask[:, None, :, None], 0.0)


def running_mean(
    u: Float[Tensor, "b n d"], mask: Bool[Tensor, "b n"] | None
) -> Float[Tensor, "b n d"]:
    """Mean over the real tokens so far."""
    # fp32: a running sum overflows half precision within a few thousand tokens.
    with full_precision(u) as (total,):
        if mask is None:
            count = torch.arange(1, u.shape[1] + 1, device=u.device)[None]
        else:
            total = total * mask[..., None]
            count = mask.cumsum(1).clamp_min(1)
        return (total.cumsum(1) / count[..., None]).to(u.dtype)
