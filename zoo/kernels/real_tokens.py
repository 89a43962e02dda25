"""Real tokens before padded ones: where positions count, padding in between must not.

A mechanism that looks at positions takes them to be ranks among the real tokens of a sample. With
the real tokens moved to the front, in their order, a sample with padding anywhere is one with
padding behind. Time and memory O(n).
"""

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor


def real_first(mask: Bool[Tensor, "b n"]) -> tuple[Int[Tensor, "b n"], Int[Tensor, "b n"]]:
    """The order that puts real tokens first, and the place of each token in it: its way back."""
    real = mask.cumsum(1)
    place = torch.where(mask, real, real[:, -1:] + (~mask).cumsum(1)) - 1
    tokens = torch.arange(mask.shape[1], device=mask.device).expand_as(place)
    return torch.zeros_like(place).scatter(1, place, tokens), place


def token_ranks(mask: Bool[Tensor, "b n"]) -> Int[Tensor, "b n"]:
    """How many real tokens stand before each of the real ones."""
    return (mask.cumsum(1) - 1).clamp_min(0)


def gather_tokens(
    tokens: Shaped[Tensor, "b *heads n d"], index: Int[Tensor, "b n"]
) -> Shaped[Tensor, "b *heads n d"]:
    """Token `index[i]` of each sample at place i."""
    batch, n = index.shape
    spread = index.reshape(batch, *(1 for _ in tokens.shape[1:-2]), n, 1)
    return tokens.gather(-2, spread.expand_as(tokens))
