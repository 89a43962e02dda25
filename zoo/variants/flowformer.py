"""Flowformer: attention as a flow from sources to sinks in which neither is made or lost.

Wu et al., "Flowformer: Linearizing Transformers with Conservation Flows", ICML 2022, arXiv
2202.06258, section 3. With phi = sigmoid, sums over the real tokens and R their number,

    I_i = phi(q_i) . sum_j phi(k_j)             what flows into sink i
    O_j = phi(k_j) . sum_i phi(q_i)             what flows out of source j
    I^_i = phi(q_i) . sum_j phi(k_j) / O_j      the same, every source giving 1
    O^_j = phi(k_j) . sum_i phi(q_i) / I_i      the same, every sink taking 1
    c_j = R softmax_j(O^)                       sources compete
    out_i = sigmoid(I^_i) phi(q_i) / I_i (sum_j phi(k_j) c_j v_j^T)       sinks allocate

Time O(n e^2) and memory O(n e) per head. Three sums come before the output can begin, and the
second needs the first, hence no causal form: the paper's own fixes the competition of a source at
the time of that source, and is another mechanism. Hence no cross-attention either: sums over
queries must leave out the padded ones, which a call with a foreign context does not tell.

No epsilon: features are positive, and phi(x) / (phi(x) . S) does not change when phi(x) is scaled.
It is computed with the largest feature scaled to 1, and so is exact where all of phi(x) would
vanish. S itself is zero where no token is real, and then so is the output. Nor is O^ clamped: by
conservation its mean over sources is 1, and the softmax is stable at any size.

Deviations: the published code adds 1e-6 to every feature and sum, and clamps O^ to [-1, 1], which
stops the gradient of every source that gives more than its share. The factor R of c is that of the
published code: under the softmax alone outputs would vanish as 1 / R.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Traits
from zoo.kernels.causal_sum import ratio
from zoo.projected import ProjectedAttention
from zoo.variants import variants


@variants.register("flowformer")
class Flowformer(ProjectedAttention):
    """Linear attention in which sources compete and sinks allocate."""

    traits = Traits(causal=False, cross=False, linear=True, stochastic=False, recurrent=False)
    # fp32 at least: the sums run over thousands of tokens, and are divided by one another.
    upcast = True

    def attend(
        self,
        q: Float[Tensor, "b h n e"],
        k: Float[Tensor, "b h n e"],
        v: Float[Tensor, "b h n e"],
        mask: Bool[Tensor, "b n"] | None,
    ) -> Float[Tensor, "b h n e"]:
        """See `ProjectedAttention.attend`."""
        return flow(q, k, v, mask)


def flow(
    q: Float[Tensor, "b h n e"],
    k: Float[Tensor, "b h n e"],
    v: Float[Tensor, "b h n e"],
    mask: Bool[Tensor, "b n"] | None,
) -> Float[Tensor, "b h n e"]:
    """Competition, aggregation and allocation; zero at padded tokens."""
    padded = None if mask is None else ~mask[:, None, :, None]
    sinks, sources = (_without(padded, part.sigmoid()) for part in (q, k))
    taken = _without(padded, conserved(q, sources.sum(-2, keepdim=True)))
    given = _without(padded, conserved(k, sinks.sum(-2, keepdim=True)))
    incoming = sinks @ given.sum(-2, keepdim=True).mT
    outgoing = sources @ taken.sum(-2, keepdim=True).mT
    if padded is None:
        competition = outgoing.softmax(-2) * v.shape[-2]
    else:
        # A finite floor: a sample without real tokens must not become NaN.
        outgoing = outgoing.masked_fill(padded, torch.finfo(outgoing.dtype).min)
        competition = outgoing.softmax(-2) * (~padded).sum(-2, keepdim=True)
    return incoming.sigmoid() * (taken @ (sources.mT @ (v * competition)))


def conserved(
    x: Float[Tensor, "b h n e"], total: Float[Tensor, "b h 1 e"]
) -> Float[Tensor, "b h n e"]:
    """Return phi(x) / (phi(x) . total): the features of a token whose flow is 1."""
    logs = F.logsigmoid(x)
    phi = (logs - logs.detach().amax(-1, keepdim=True)).exp()
    return ratio(phi, phi @ total.mT)


def _without(
    padded: Bool[Tensor, "b 1 n 1"] | None, features: Float[Tensor, "b h n e"]
) -> Float[Tensor, "b h n e"]:
    return features if padded is None else features.masked_fill(padded, 0.0)
