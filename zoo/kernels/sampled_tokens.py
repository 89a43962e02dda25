"""Evenly spaced real tokens of each sample.

Of `plain`, autograd writes the gradient into zeros of length n, and adds those to the gradient of
all tokens. `in_place` adds the gradients of the sampled tokens alone.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from zoo.kernels import eager

Tokens = Float[Tensor, "b n d"]
Sample = Float[Tensor, "b a d"]
Sampled = Int[Tensor, "b a"]


def sampled_positions(count: int, x: Tokens, mask: Bool[Tensor, "b n"] | None) -> Sampled:
    # First and last included. Fewer real tokens are repeated; without any it is the last position.
    batch, n, _ = x.shape
    index = torch.arange(count, device=x.device)
    last = max(count - 1, 1)
    if mask is None:
        return (index * (n - 1) // last).expand(batch, -1)
    real = mask.cumsum(1)
    rank = index * (real[:, -1:] - 1).clamp_min(0) // last
    # The token of rank r is the first at which r + 1 real tokens have been counted.
    return torch.searchsorted(real, rank + 1).clamp_max(n - 1)


def plain(x: Tokens, positions: Sampled) -> tuple[Tokens, Sample]:
    return x, x.gather(1, positions[..., None].expand(-1, -1, x.shape[-1]))


def in_place(x: Tokens, positions: Sampled) -> tuple[Tokens, Sample]:
    # Everything else that depends on x must be computed from the x that is returned.
    # A compiler derives gradients by itself, and does not trace the function.
    planned = torch.compiler.is_compiling() or eager.transformed()
    return plain(x, positions) if planned else _Sample.apply(x, positions)


class _Sample(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        x, positions = inputs
        rows = positions + x.shape[1] * torch.arange(x.shape[0], device=x.device)[:, None]
        ctx.save_for_backward(rows)
        sample = x.reshape(-1, x.shape[-1]).index_select(0, rows.flatten())
        return x, sample.view(*rows.shape, x.shape[-1])

    @staticmethod
    def backward(ctx: Any, d_x: Tensor, d_sample: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (rows,) = ctx.saved_tensors
        # A gradient that is to be differentiated itself is not changed in place.
        d_x = d_x.clone() if torch.is_grad_enabled() else d_x.contiguous()
        d_x.view(-1, d_x.shape[-1]).index_add_(0, rows.flatten(), d_sample.flatten(0, 1))
        return d_x, None
