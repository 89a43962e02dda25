"""Depth-wise convolution over tokens, one kernel a head, as products with bands of its taps.

    out_i = sum_t taps_t v_(i + t - T // 2)        v is zero before the first and behind the last

Over a block of tokens that is a banded matrix, the same for every block, sample and entry of a
head: one large product a head, where a grouped convolution with a channel a group leaves most of a
CPU idle. Time O(n (block + T) e) and memory O(n (1 + T / block) e) per head.

Axis letter beyond the contract's: `t` taps.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

BLOCK = 64


def convolved(v: Float[Tensor, "b h n e"], taps: Float[Tensor, "h t"]) -> Float[Tensor, "b h n e"]:
    """Values of every token and its neighbours, weighed by an odd number of taps."""
    n, reach = v.shape[-2], taps.shape[-1] // 2
    width = BLOCK + 2 * reach
    # Each row of a band is the one above it, moved by one: a period of one more than the width.
    band = F.pad(taps, (0, BLOCK)).repeat(1, BLOCK)[:, : BLOCK * width].unflatten(1, (BLOCK, width))
    padded = F.pad(v, (0, 0, reach, reach + -n % BLOCK))
    windows = padded.unfold(-2, width, BLOCK)
    return torch.einsum("hiw,bhcew->bhcie", band, windows).flatten(2, 3)[:, :, :n]
