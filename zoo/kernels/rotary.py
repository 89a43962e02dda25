"""Rotary positions: queries and keys turned by angles that grow with their places.

Su et al., 2021, arXiv 2104.09864, equation 34: a pair of channels c of p is turned at place i by
the angle i 10,000^(-c / p), so that a product of a query and a key feels their distance only. Norms
stay. Deviation: channel c goes with channel c + p, not with its neighbour; of an odd number of
channels the last one stays as it is.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

BASE = 1e4


def rotate_tokens(x: Float[Tensor, "b h n e"]) -> Float[Tensor, "b h n e"]:
    """Each token turned by its place in the sequence."""
    return rotate(x, torch.arange(x.shape[-2], device=x.device)[None])


def rotate(x: Float[Tensor, "b h n e"], place: Int[Tensor, "#b n"]) -> Float[Tensor, "b h n e"]:
    """Each token turned by the place given for it."""
    pairs = x.shape[-1] // 2
    # Double: fp32 loses the angle of a far token, by 1e-3 from i = 16k on.
    theta = BASE ** -(torch.arange(pairs, dtype=torch.float64, device=x.device) / pairs)
    angle = place[:, None, :, None] * theta
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    one, other, rest = x.split((pairs, pairs, x.shape[-1] - 2 * pairs), dim=-1)
    return torch.cat([one * cos - other * sin, one * sin + other * cos, rest], dim=-1)
