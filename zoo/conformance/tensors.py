"""Inputs of the checks, and quantities computed from outputs."""

from collections.abc import Iterator

import torch
from torch import Tensor

from zoo.contract import Attended, Attention

DIM = 16
LENGTH = 150
"""Tokens of the usual input: longer than every default block, and a multiple of none."""


def random_tokens(*shape: int, seed: int = 2, dim: int = DIM) -> Tensor:
    """Normal tokens (*shape, dim) in double precision, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dim, dtype=torch.float64, generator=generator)


def padding_masks(length: int = LENGTH) -> Iterator[Tensor]:
    """Two masks (3, length): padding after the real tokens; padding before, between and after."""
    position = torch.arange(length)
    yield position < torch.tensor([length, length * 2 // 3, 7])[:, None]
    between = (position < length // 5) | (position > length * 3 // 5)
    yield torch.stack([between, position % 3 > 0, (position > 3) & (position < length - 10)])


SCATTERED = list(padding_masks())[1]
"""A mask with padding before, between and after the real tokens."""


def output(layer: Attention, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """The new tokens of self-attention."""
    return layer(x, mask=mask).tokens


def probe_loss(attended: Attended, mask: Tensor | None = None) -> Tensor:
    """A scalar to which each coordinate of each real token contributes with its own weight."""
    tokens = attended.tokens if mask is None else attended.tokens[mask]
    weights = torch.linspace(-1, 1.3, tokens.numel(), dtype=tokens.dtype).reshape(tokens.shape)
    return (tokens * weights).sum() + sum(attended.losses.values())


def distance(one: Tensor, other: Tensor) -> float:
    """The largest difference of entries, relative to the largest entry where that exceeds 1.

    Infinite if shapes differ or an entry is not finite: a maximum would drop NaN.
    """
    if one.shape != other.shape:
        return float("inf")
    if one.numel() == 0:
        return 0.0
    if not (one.isfinite().all() and other.isfinite().all()):
        return float("inf")
    return ((one - other).abs().max() / other.abs().max().clamp_min(1.0)).item()
