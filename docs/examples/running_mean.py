"""A running mean: AFT-simple in its causal form, with a step for each token.

Zhai et al., "An Attention Free Transformer", 2021, arXiv 2105.14103. Per head and channel:

    out_i = sigmoid(q_i) * sum_{j <= i} sigmoid(k_j) v_j / sum_{j <= i} sigmoid(k_j)

Time and memory O(n d). Deviation: weights are sigmoid(k), where the paper has exp(k).
"""

from zoo.contract import Keys, Mask, OneToken, Queries, State, Traits
from zoo.kernels.precision import TINY
from zoo.kernels.real_tokens import zero_padding
from zoo.projected import ProjectedAttention


class RunningMean(ProjectedAttention):
    """The weighted mean of the values so far, times a gate for each query."""

    traits = Traits.causal_only(linear=True, stochastic=False, recurrent=True)
    upcast = True

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask | None) -> Queries:
        """All tokens at once."""
        weights = zero_padding(k.sigmoid(), mask)
        total = weights.cumsum(2).clamp_min(TINY)
        return q.sigmoid() * (weights * v).cumsum(2) / total

    def begin(self, batch: int) -> State:
        """The sums before the first token."""
        empty = self.zero_state(batch, self.size.heads, 1, self.size.head_dim)
        return empty, empty

    def recur(self, q: OneToken, k: OneToken, v: OneToken, state: State) -> tuple[OneToken, State]:
        """The output at the next token, and the sums with it."""
        sums, total = state[0] + k.sigmoid() * v, state[1] + k.sigmoid()
        return q.sigmoid() * sums / total.clamp_min(TINY), (sums, total)
