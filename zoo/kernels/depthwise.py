"""Depth-wise convolution over tokens, one kernel per head, as products with band matrices.

    out_i = sum_t taps_t v_(i + t - T // 2)        v is zero outside of the sequence

Over a block of tokens that is a band matrix, the same for every block, sample and entry of a head:
one large product per head, where a grouped convolution with one channel per group uses a small part
of a CPU. Time O(n (block + T) e) and memory O(n (1 + T / block) e) per head.

Axis letter beyond the contract's: `t` taps.
"""

from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import AfterValidator
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Queries

BLOCK = 64


def _odd_or_zero(taps: int) -> int:
    if taps < 0 or (taps and taps % 2 == 0):
        raise ValueError("must be an odd number of taps, or 0 for none")
    return taps


# The type of an option that is a number of taps.
Taps = Annotated[int, AfterValidator(_odd_or_zero)]


def convolve(v: Queries, taps: Float[Tensor, "h t"]) -> Queries:
    n, reach = v.shape[-2], taps.shape[-1] // 2
    width = BLOCK + 2 * reach
    # Each row of a band is the one above it, shifted by one: a period of one more than the width.
    band = F.pad(taps, (0, BLOCK)).repeat(1, BLOCK)[:, : BLOCK * width].unflatten(1, (BLOCK, width))
    padded = F.pad(v, (0, 0, reach, reach + -n % BLOCK))
    windows = padded.unfold(-2, width, BLOCK)
    return torch.einsum("hiw,bhcew->bhcie", band, windows).flatten(2, 3)[:, :, :n]
