"""One token of a sum over the past: what `zoo.kernels.causal_sum` computes, from a state.

    S_i = S_(i-1) + k_i v_i^T        total_i = q_i^T S_i        mean_i = total_i / (q_i . z_i)

where z_i is the sum of the k_j: the last column of S_i, with a one beside each v_j. Time and memory
O(f g) a token, however many came before.

Axis letters beyond the contract's: `f` features, `g` the width of what is summed.
"""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from zoo.kernels.causal_sum import ratio


def mean(
    queries: Float[Tensor, "b h 1 f"],
    keys: Float[Tensor, "b h 1 f"],
    values: Float[Tensor, "b h 1 e"],
    sums: Float[Tensor, "b h f g"],
) -> tuple[Float[Tensor, "b h 1 e"], Float[Tensor, "b h f g"]]:
    """Return the weighted mean over the tokens so far, and S with this one; g = e + 1.

    Features are nonnegative. Where the weights of the query all vanish, its mean is zero.
    """
    found, sums = total(queries, keys, F.pad(values, (0, 1), value=1.0), sums)
    return ratio(found[..., :-1], found[..., -1:]), sums


def total(
    queries: Float[Tensor, "b h 1 f"],
    keys: Float[Tensor, "b h 1 f"],
    values: Float[Tensor, "b h 1 g"],
    sums: Float[Tensor, "b h f g"],
) -> tuple[Float[Tensor, "b h 1 g"], Float[Tensor, "b h f g"]]:
    """Return the weighted sum over the tokens so far, and S with this one."""
    sums = sums + keys.mT * values
    return queries @ sums, sums
