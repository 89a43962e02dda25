"""AFT-simple: the weights of the values do not depend on the query.

Zhai et al., "An Attention Free Transformer", 2021, arXiv 2105.14103, section 3.2. Per head and
channel:

    out_i = sigmoid(q_i) * sum_j softmax_j(k_j) v_j

Time and memory O(n d). Padded keys get no weight.
"""

from torch import finfo

from zoo.contract import Keys, Mask, Queries, Traits
from zoo.projected import ProjectedAttention


class AttentionFree(ProjectedAttention):
    """A weighted mean of the values, the same for all queries, times a gate for each query."""

    traits = Traits(causal=False, cross=True, linear=True, stochastic=False, recurrent=False)

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask | None) -> Queries:
        """See `ProjectedAttention.attend`."""
        if mask is not None:
            # Not minus infinity: a sample without any real token must stay finite.
            k = k.masked_fill(~mask[:, None, :, None], finfo(k.dtype).min)
        return q.sigmoid() * (k.softmax(-2) * v).sum(-2, keepdim=True)
