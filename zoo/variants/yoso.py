"""YOSO-E: attention by the expected collisions of locality-sensitive hashes.

Zeng et al., "You Only Sample (Almost) Once: Linear Cost Self-Attention Via Bernoulli Sampling",
ICML 2021, arXiv 2111.09714, section 3. A random hyperplane has u and v on one side with probability
1 - angle(u, v) / pi; tau of them, which make one hash, with the tau-th power of that:

    w_ij = (1 - arccos(q_i . k_j / (|q_i| |k_j|)) / pi)^tau
    y_i = sum_j w_ij v_j                     j over the real tokens, and up to i if causal
    out_i = y_i / |y_i|

This is the expectation itself, YOSO-E. The paper's algorithm of linear cost, which samples the
hashes, is not implemented. Time O(n m e), memory O(n m); O(n e) on a CPU, where weights are
computed twice.

The derivative of w with respect to the cosine s (`zoo.kernels.collisions`) grows without bound
towards s = 1. That with respect to q does not: the normalisation of q keeps
only the part of k that is orthogonal to q, whose length is sqrt(1 - s^2). So the exact gradient is
finite; sqrt(1 - s^2) has a lower bound only where the cosine is rounded to 1: angles below 3e-3 in
fp32, 1e-7 in double, and as close to pi. There the gradient falls to zero, which is its mean over
directions at the maximum of w.

Deviations: the paper trains by a lower bound of that derivative, tau / 2 w; it is an option here.
A zero query, key or sum is normalised to zero, with a gradient of zero: so a query without real
keys returns zero. In fp32 the error of a cosine near 1 is 1e-7, hence of w 1e-3 at worst.
"""

from typing import Literal

import torch
from torch import Tensor

from zoo.contract import Count, Keys, Mask, OneToken, Queries, Size, State, Traits
from zoo.kernels import collisions, eager, key_value_cache
from zoo.kernels.real_tokens import zero_padding
from zoo.projected import ProjectedAttention
from zoo.variants import variants

TINY = 1e-15  # The norm below which a vector counts as zero. Its square can be represented in fp32.


@variants.register("yoso")
class Yoso(ProjectedAttention):
    """Attention whose weights are probabilities that the hashes of query and key collide.

    Args:
        tau: hyperplanes of a hash; more make attention sharper.
        gradient: `exact` for the derivative of the weights, `bound` for the paper's lower bound
            of it, which has no derivative.
    """

    version = "1.0"
    traits = Traits(causal=True, cross=True, linear=False, stochastic=False, recurrent=False)
    family = "sparse"
    drops_weights = True
    caches = True
    # fp32 at least: arccos near 1 turns a rounding of the cosine into its square root.
    upcast = True

    def __init__(
        self, size: Size, *, tau: Count = 8, gradient: Literal["exact", "bound"] = "exact"
    ) -> None:
        super().__init__(size)
        self.tau, self.bound = tau, gradient == "bound"

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask) -> Queries:
        v = zero_padding(v, mask)
        form = collisions.Form(self.size.causal, self.tau, self.bound)
        if self.dropout or not eager.on_cpu(q):
            return unit(collisions.plain(unit(q), unit(k), v, form, self.dropout))
        return unit(collisions.tiled(unit(q), unit(k), v, form))

    def recur(self, q: OneToken, k: OneToken, v: OneToken, state: State) -> tuple[OneToken, State]:
        # The cache has unit keys.
        state = key_value_cache.append(state, unit(k), v)
        return unit(key_value_cache.attend(state, unit(q), self.weigh)), state

    def attend_after(
        self, q: Queries, k: Keys, v: Keys, real: Mask, state: State
    ) -> tuple[Queries, State]:
        return super().attend_after(q, unit(k), v, real, state)

    def weigh(self, products: Tensor, real: Tensor) -> Tensor:
        weights = collisions.collision_probabilities(products, tau=self.tau, bound=self.bound)
        return weights.masked_fill(~real, 0.0)


def unit(x: Queries) -> Queries:
    # Zero for vectors without a direction.
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    zero = norm < TINY
    return (x / norm.masked_fill(zero, 1.0)).masked_fill(zero, 0.0)
