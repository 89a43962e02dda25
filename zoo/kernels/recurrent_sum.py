"""One step of a causal sum: the result of `zoo.kernels.causal_sum` at one token, from a state.

    S_i = S_(i-1) + k_i v_i^T        total_i = q_i^T S_i        mean_i = total_i / (q_i . z_i)

where z_i is the sum of the k_j: the last column of S_i, with a one appended to each v_j. Time and
memory O(f g) a token, whatever the number of tokens before it.

Axis letters beyond the contract's: `f` features, `g` the width of the summed values.
"""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import OneToken
from zoo.kernels.causal_sum import ratio

Features = Float[Tensor, "b h 1 f"]
Sums = Float[Tensor, "b h f g"]


def mean(queries: Features, keys: Features, values: OneToken, sums: Sums) -> tuple[OneToken, Sums]:
    """Return the weighted mean over the tokens so far, and S with this one; g = e + 1.

    Features are nonnegative. If all weights of a query are zero, so is its mean.
    """
    totals, sums = total(queries, keys, F.pad(values, (0, 1), value=1.0), sums)
    return ratio(totals[..., :-1], totals[..., -1:]), sums


def total(
    queries: Features, keys: Features, values: Float[Tensor, "b h 1 g"], sums: Sums
) -> tuple[Float[Tensor, "b h 1 g"], Sums]:
    """Return the weighted sum over the tokens so far, and S with this one."""
    sums = sums + keys.mT * values
    return queries @ sums, sums
