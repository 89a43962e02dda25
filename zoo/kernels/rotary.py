"""Rotary position embeddings: pairs of channels rotated by angles proportional to the position.

Su et al., 2021, arXiv 2104.09864, equation 34: pair c of p at position i is rotated by the angle
i 10,000^(-c / p), so that the product of a query and a key depends on their distance only. Norms do
not change. Deviation: channel c is paired with channel c + p, not with its neighbour; of an odd
number of channels the last one is not rotated.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

BASE = 1e4


def apply_rotary(
    x: Float[Tensor, "b h n e"], positions: Int[Tensor, "#b n"] | None = None
) -> Float[Tensor, "b h n e"]:
    """Rotate each token by its position: its index along n, unless `positions` are given."""
    if positions is None:
        positions = torch.arange(x.shape[-2], device=x.device)[None]
    pairs = x.shape[-1] // 2
    # Double: in fp32 the error of the angle is 1e-3 from i = 16k on.
    theta = BASE ** -(torch.arange(pairs, dtype=torch.float64, device=x.device) / pairs)
    angle = positions[:, None, :, None] * theta
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second, rest = x.split((pairs, pairs, x.shape[-1] - 2 * pairs), dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos, rest], dim=-1)
