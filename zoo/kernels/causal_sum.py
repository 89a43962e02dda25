"""Sums of values weighed by products of features, over all tokens or over the past alone.

The core of every attention whose weights are `queries_i . keys_j`: with the product associated to
the right no weight is ever built. All tokens: time O(n f g), memory O(f g). The past alone:

    plain     the definition, with all n x n weights in memory
    chunked   exact weights within a chunk, and before it a state: O(n chunk (f + g)) more time, and
              O(n / chunk f g) memory for the states between chunks

Nothing about the future reaches the past, not even through rounding.

Axis letters beyond the contract's: `f` features, `g` the width of what is summed.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F


def mean(
    queries: Float[Tensor, "b h n f"],
    keys: Float[Tensor, "b h m f"],
    values: Float[Tensor, "b h m e"],
    causal: bool,
    chunk: int,
) -> Float[Tensor, "b h n e"]:
    """Return `sum_j (queries_i . keys_j) values_j / sum_j (queries_i . keys_j)`; see `total`.

    Features are nonnegative. Where the weights of a query all vanish, its mean is zero.
    """
    # The denominator comes out of the same products, by a one beside each value, or by the sum of
    # the keys where they are the narrower.
    if causal or keys.shape[-1] > values.shape[-1]:
        sums = total(queries, keys, F.pad(values, (0, 1), value=1.0), causal, chunk)
    else:
        sums = queries @ torch.cat([keys.mT @ values, keys.sum(-2)[..., None]], dim=-1)
    return ratio(*sums.split([values.shape[-1], 1], dim=-1))


def total(
    queries: Float[Tensor, "b h n f"],
    keys: Float[Tensor, "b h m f"],
    values: Float[Tensor, "b h m g"],
    causal: bool,
    chunk: int,
) -> Float[Tensor, "b h n g"]:
    """Return `sum_j (queries_i . keys_j) values_j` over all j, or over j <= i if `causal`.

    Args:
        queries: features of the tokens that ask.
        keys: features of the tokens that answer, zero where padded.
        values: what is summed, finite where padded.
        causal: whether j runs up to i only; then there are as many keys as queries.
        chunk: tokens of a causal block; the result does not depend on it.
    """
    if causal:
        return chunked(queries, keys, values, chunk)
    return queries @ (keys.mT @ values)


def plain(
    queries: Float[Tensor, "b h n f"],
    keys: Float[Tensor, "b h n f"],
    values: Float[Tensor, "b h n g"],
) -> Float[Tensor, "b h n g"]:
    """Return `sum_{j <= i} (queries_i . keys_j) values_j`: the definition."""
    return (queries @ keys.mT).tril() @ values


def chunked(
    queries: Float[Tensor, "b h n f"],
    keys: Float[Tensor, "b h n f"],
    values: Float[Tensor, "b h n g"],
    chunk: int,
) -> Float[Tensor, "b h n g"]:
    """What `plain` computes, in linear time and memory."""
    n = queries.shape[-2]
    chunk = min(chunk, n)
    q, k, v = (
        F.pad(part, (0, 0, 0, -n % chunk)).unflatten(-2, (-1, chunk))
        for part in (queries, keys, values)
    )
    states = k.mT @ v
    # Shifted, and not `cumsum - states`: the rounding of that difference would tell of the future.
    past = F.pad(states[:, :, :-1].cumsum(2), (0, 0, 0, 0, 1, 0))
    sums = (q @ k.mT).tril() @ v + q @ past
    return sums.flatten(2, 3)[:, :, :n]


def ratio(
    numerator: Float[Tensor, "b h n e"], denominator: Float[Tensor, "b h n 1"]
) -> Float[Tensor, "b h n e"]:
    """Numerator by a nonnegative denominator; nothing by nothing is zero."""
    # Below this, what underflow took is no longer a rounding error of what is left.
    floor = torch.finfo(denominator.dtype).tiny / torch.finfo(denominator.dtype).eps
    return numerator / denominator.masked_fill(denominator < floor, torch.inf)
