"""Sums of values weighted by products of features, over all tokens or over the past alone.

Every attention with weights `queries_i . keys_j` is such a sum. As `queries (keys^T values)` it
needs no weights. All tokens: time O(n f g), memory O(f g). The past alone:

    plain     the definition, with all n x n weights in memory
    chunked   exact weights within a chunk, and a state for what is before it: O(n chunk (f + g))
              more time, and O(n / chunk f g) memory for the states between chunks

A later token changes no earlier output, not even through rounding. The sum of `keys^T values` over
the past is a state of f g numbers: further tokens continue from it.

Axis letters beyond the contract's: `f` features, `g` the width of the summed values.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Keys, Queries
from zoo.kernels.blocks import block_size, from_blocks, in_blocks

QueryFeatures = Float[Tensor, "b h n f"]
KeyFeatures = Float[Tensor, "b h m f"]
Values = Float[Tensor, "b h m g"]
Sums = Float[Tensor, "b h n g"]
State = Float[Tensor, "b h f g"]


def mean(
    queries: QueryFeatures, keys: KeyFeatures, values: Keys, causal: bool, chunk: int
) -> Queries:
    """Return `sum_j (queries_i . keys_j) values_j / sum_j (queries_i . keys_j)`; see `total`.

    Features are nonnegative. If all weights of a query are zero, so is its mean.
    """
    # The denominator is computed by the same product: from a one appended to each value, or, where
    # keys are no wider than values, from the sum of the keys.
    if causal or keys.shape[-1] > values.shape[-1]:
        sums = total(queries, keys, F.pad(values, (0, 1), value=1.0), causal, chunk)
    else:
        sums = queries @ torch.cat([keys.mT @ values, keys.sum(-2)[..., None]], dim=-1)
    return ratio(*sums.split([values.shape[-1], 1], dim=-1))


def total(
    queries: QueryFeatures, keys: KeyFeatures, values: Values, causal: bool, chunk: int
) -> Sums:
    """Return `sum_j (queries_i . keys_j) values_j` over all j, or over j <= i if `causal`.

    Where padded, keys are zero and values finite. The result does not depend on `chunk`, the tokens
    of a causal block.
    """
    if causal:
        return chunked(queries, keys, values, chunk)
    return queries @ (keys.mT @ values)


def plain(queries: QueryFeatures, keys: KeyFeatures, values: Values) -> Sums:
    """Return `sum_{j <= i} (queries_i . keys_j) values_j`: the definition."""
    return (queries @ keys.mT).tril() @ values


def chunked(queries: QueryFeatures, keys: KeyFeatures, values: Values, chunk: int) -> Sums:
    """The result of `plain`, in linear time and memory."""
    q, k, v = (in_blocks(x, block_size(chunk, x.shape[-2])) for x in (queries, keys, values))
    states = k.mT @ v
    # Shifted, and not `cumsum - states`: the rounding of that difference depends on the future.
    past = F.pad(states, (0, 0, 0, 0, 1, 0))[:, :, :-1].cumsum(2)
    return from_blocks((q @ k.mT).tril() @ v + q @ past, queries.shape[-2])


def mean_after(
    queries: QueryFeatures, keys: KeyFeatures, values: Keys, state: State, chunk: int
) -> tuple[Queries, State]:
    """A causal `mean` at the next tokens, and the state with these; g = e + 1."""
    sums, state = total_after(queries, keys, F.pad(values, (0, 1), value=1.0), state, chunk)
    return ratio(sums[..., :-1], sums[..., -1:]), state


def total_after(
    queries: QueryFeatures, keys: KeyFeatures, values: Values, state: State, chunk: int
) -> tuple[Sums, State]:
    """A causal `total` at the next tokens, and the state with these."""
    n = queries.shape[-2]
    if n == 1:
        state = state + keys.mT * values
        return queries @ state, state
    q, k, v = (in_blocks(x, block_size(chunk, n)) for x in (queries, keys, values))
    states = torch.cat([state[:, :, None], k.mT @ v], dim=2).cumsum(2)
    return from_blocks((q @ k.mT).tril() @ v + q @ states[:, :, :-1], n), states[:, :, -1]


def ratio(numerator: Queries, denominator: Float[Tensor, "b h n 1"]) -> Queries:
    """Numerator divided by a nonnegative denominator; zero by zero is zero."""
    # Below this, the error of underflow is larger than the error of rounding.
    smallest = torch.finfo(denominator.dtype).tiny / torch.finfo(denominator.dtype).eps
    return numerator / denominator.masked_fill(denominator < smallest, torch.inf)
