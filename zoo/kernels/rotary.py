"""Rotary position embeddings: pairs of channels rotated by angles proportional to the position.

Su et al., 2021, arXiv 2104.09864, equation 34: pair c of p at position i is rotated by the angle
i 10,000^(-c / p), so that the product of a query and a key depends on their distance only. Norms do
not change. Deviation: channel c is paired with channel c + p, not with its neighbour; of an odd
number of channels the last one is not rotated.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from zoo.kernels import eager

BASE = 1e4


def apply_rotary(
    x: Float[Tensor, "b h n e"], positions: Int[Tensor, "#b n"] | None = None
) -> Float[Tensor, "b h n e"]:
    if positions is None:
        positions = torch.arange(x.shape[-2], device=x.device)[None]
    pairs = x.shape[-1] // 2
    if eager.on_cpu(x) and (positions == positions[:1]).all():
        positions = positions[:1]  # the angles of all samples are equal, and computed once
    # Double: in fp32 the error of the angle is 1e-3 from i = 16k on.
    theta = BASE ** -(torch.arange(pairs, dtype=torch.float64, device=x.device) / pairs)
    angle = positions[:, None, :, None] * theta
    cos, sin, rest = angle.cos(), angle.sin(), x.shape[-1] - 2 * pairs
    cos = F.pad(torch.cat([cos, cos], dim=-1), (0, rest), value=1.0).to(x.dtype)
    sin = F.pad(torch.cat([-sin, sin], dim=-1), (0, rest)).to(x.dtype)
    first, second, last = x.split((pairs, pairs, rest), dim=-1)
    return torch.addcmul(x * cos, torch.cat([second, first, last], dim=-1), sin)
