"""Flowformer: attention as a flow that is conserved at each source and sink.

Wu et al., "Flowformer: Linearizing Transformers with Conservation Flows", ICML 2022, arXiv
2202.06258, section 3. With phi = sigmoid, sums over the real tokens and R their number,

    I_i = phi(q_i) . sum_j phi(k_j)             incoming flow of sink i
    O_j = phi(k_j) . sum_i phi(q_i)             outgoing flow of source j
    I^_i = phi(q_i) . sum_j phi(k_j) / O_j      the same, with an outgoing flow of 1 per source
    O^_j = phi(k_j) . sum_i phi(q_i) / I_i      the same, with an incoming flow of 1 per sink
    c_j = R softmax_j(O^)                       competition of the sources
    out_i = sigmoid(I^_i) phi(q_i) / I_i (sum_j phi(k_j) c_j v_j^T)       allocation to the sinks

Time O(n e^2) and memory O(n e) per head. The output needs three sums over all tokens, and the
second needs the first, so there is no causal form: in the paper's, the competition of a source is
computed from the tokens up to that source, which is another mechanism. There is no cross-attention
either: sums over queries must leave out the padded ones, and the mask is for the context alone.

No epsilon: features are positive, and phi(x) / (phi(x) . S) does not change when phi(x) is scaled.
It is computed with the largest feature scaled to 1, so it is exact where all of phi(x) would
underflow. S is zero where no token is real, and then so is the output. O^ is not clamped: by
conservation its mean over sources is 1, and the softmax is stable at any size.

Deviations: the published code adds 1e-6 to every feature and sum, and clamps O^ to [-1, 1], which
removes the gradient of every source with a flow above 1. The factor R of c is from the published
code: with the softmax alone the output would decrease as 1 / R.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Keys, Mask, Queries, Traits
from zoo.kernels.causal_sum import ratio
from zoo.kernels.real_tokens import zero_padding
from zoo.projected import ProjectedAttention
from zoo.variants import variants


@variants.register("flowformer")
class Flowformer(ProjectedAttention):
    """Linear attention with competition among sources and allocation among sinks."""

    version = "1.0"
    traits = Traits(causal=False, cross=False, linear=True, stochastic=False, recurrent=False)
    family = "kernel"
    batch_parts = 4
    # fp32 at least: the sums run over thousands of tokens, and are divided by one another.
    upcast = True

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask) -> Queries:
        sinks, sources = (zero_padding(part.sigmoid(), mask) for part in (q, k))
        per_sink = zero_padding(unit_flow(q, sources.sum(-2, keepdim=True)), mask)
        per_source = zero_padding(unit_flow(k, sinks.sum(-2, keepdim=True)), mask)
        incoming = sinks @ per_source.sum(-2, keepdim=True).mT
        outgoing = sources @ per_sink.sum(-2, keepdim=True).mT
        if mask is None:
            competition = outgoing.softmax(-2) * v.shape[-2]
        else:
            real = mask[:, None, :, None]
            # A finite minimum: a sample without real tokens must not become NaN.
            outgoing = outgoing.masked_fill(~real, torch.finfo(outgoing.dtype).min)
            competition = outgoing.softmax(-2) * real.sum(-2, keepdim=True)
        return incoming.sigmoid() * (per_sink @ (sources.mT @ (v * competition)))

    def head_flops(self, n: int) -> int:
        width = self.size.head_dim
        return 2 * n * (2 * width**2 + 4 * width)


def unit_flow(x: Queries, total: Float[Tensor, "b h 1 e"]) -> Queries:
    # phi(x) / (phi(x) . total): features scaled to a flow of 1 per token.
    logs = F.logsigmoid(x)
    phi = (logs - logs.detach().amax(-1, keepdim=True)).exp()
    return ratio(phi, phi @ total.mT)
