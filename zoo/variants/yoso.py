"""YOSO-E: attention by the expected collisions of locality-sensitive hashes.

Zeng et al., "You Only Sample (Almost) Once: Linear Cost Self-Attention Via Bernoulli Sampling",
ICML 2021, arXiv 2111.09714, section 3. A random hyperplane has u and v on one side with probability
1 - angle(u, v) / pi; tau of them, which make one hash, with that to the power of tau:

    w_ij = (1 - arccos(q_i . k_j / (|q_i| |k_j|)) / pi)^tau
    y_i = sum_j w_ij v_j                     j over the real tokens, and up to i if causal
    out_i = y_i / |y_i|

This is the expectation itself, YOSO-E. The paper's algorithm of linear cost samples the hashes, and
is not here. Time O(n m e), memory O(n m); O(n e) on a CPU, where weights are made twice.

The derivative of w in the cosine s, tau (1 - arccos(s) / pi)^(tau - 1) / (pi sqrt(1 - s^2)), grows
without bound towards s = 1. The derivative in q does not: normalising q leaves of k only the part
across q, whose length is sqrt(1 - s^2). So the exact gradient is finite; sqrt(1 - s^2) has a floor
only where rounding takes the cosine for 1: angles below 3e-3 in fp32, 1e-7 in double, and as near
to pi. In that cap the gradient falls to zero, which is its mean over directions at w's peak.

Deviations: the paper trains by a lower bound of that derivative, tau / 2 w; it is an option here.
A direction that is nothing, of a zero query, key or sum, is zero, with a gradient of zero: so a
query without a real key in sight returns zero. fp32 knows a cosine near 1 to 1e-7, hence w to 1e-3
at worst.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.contract import Size, Traits
from zoo.kernels import collisions, eager
from zoo.projected import ProjectedAttention
from zoo.registry import require_at_least
from zoo.variants import variants

TINY = 1e-15
"""The norm below which a vector has no direction. Its square is a number in fp32."""


@variants.register("yoso")
class Yoso(ProjectedAttention):
    """Attention whose weights are probabilities that the hashes of query and key collide."""

    traits = Traits(causal=True, cross=True, linear=False, stochastic=False, recurrent=False)
    # fp32 at least: arccos near 1 turns a rounding of the cosine into its square root.
    upcast = True

    def __init__(
        self, size: Size, *, tau: int = 8, gradient: Literal["exact", "bound"] = "exact"
    ) -> None:
        """Choose the hash.

        Args:
            size: what every variant is built from.
            tau: hyperplanes of a hash; more make attention sharper.
            gradient: `exact` for the derivative of the weights, `bound` for the paper's lower bound
                of it. Either way the result can be differentiated once.

        Raises:
            UserError: `tau` below 1.
        """
        super().__init__(size)
        require_at_least(1, "yoso", tau=tau)
        self.tau, self.bound = tau, gradient == "bound"

    def attend(
        self,
        q: Float[Tensor, "b h n e"],
        k: Float[Tensor, "b h m e"],
        v: Float[Tensor, "b h m e"],
        mask: Bool[Tensor, "b m"] | None,
    ) -> Float[Tensor, "b h n e"]:
        """See `ProjectedAttention.attend`."""
        if mask is not None:
            k, v = (part.masked_fill(~mask[:, None, :, None], 0.0) for part in (k, v))
        form = collisions.Form(self.size.causal, self.tau, self.bound)
        dropout = self.size.dropout if self.training else 0.0
        if dropout or not eager.on_cpu(q):
            return unit(collisions.plain(unit(q), unit(k), v, form, dropout))
        return unit(collisions.tiled(unit(q), unit(k), v, form))


def unit(x: Float[Tensor, "b h n e"]) -> Float[Tensor, "b h n e"]:
    """Directions, and zero for what has none."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    nothing = norm < TINY
    return (x / norm.masked_fill(nothing, 1.0)).masked_fill(nothing, 0.0)
