"""Taylor linear attention of Based: the softmax kernel to second order.

Arora et al., "Simple Linear Attention Language Models Balance the Recall-Throughput Tradeoff", ICML
2024, arXiv 2402.18668, section 4.1. With queries and keys of f channels and s = q . k / sqrt(f),

    phi(x) = [1, x / f^(1/4), x_a^2 / sqrt(2 f), x_a x_b / sqrt(f) for a < b]
    phi(q) . phi(k) = 1 + s + s^2 / 2
    out_i = sum_j phi(q_i) . phi(k_j) v_j / sum_j phi(q_i) . phi(k_j)

where j runs over the real tokens, and up to i in the causal form. Of f channels there are F = 1 + f
+ f (f + 1) / 2 features, 153 of 16. Time O(n F e) and memory O(n F) per head; for the causal form
see `zoo.kernels.causal_sum`; a state has F (e + 1) numbers.

A weight is ((1 + s)^2 + 1) / 2, at least 1/2 whatever the tokens are: sums never vanish, and no
token is forgotten. Based has such layers, layers of attention to a small window, and gated
convolutions: `taylor+local` is Based without the last.

Deviations: projections have a bias. Each product of two channels is one feature, as in the
reference kernels; the published layer has both of x_a x_b and x_b x_a. A query without real keys
returns zero; the published code adds 1e-12 to the denominator.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.contract import Count, Keys, Mask, Queries, Size, State, Traits
from zoo.kernels import causal_sum
from zoo.kernels.real_tokens import zero_padding
from zoo.projected import Outputs, ProjectedAttention, Values
from zoo.projection import ShortConvolution
from zoo.spans import SPANS, in_spans
from zoo.variants import variants


@variants.register("taylor")
class Taylor(ProjectedAttention):
    """Attention with weights 1 + s + s^2 / 2 of the scaled product s, normalised over j.

    Args:
        feature_dim: f, the channels of a query and a key of each head.
        chunk: tokens of a causal block; the result does not depend on it.
    """

    version = "1.0"
    family = "kernel"
    traits = Traits(causal=True, cross=True, linear=True, stochastic=False, recurrent=True)
    # fp32 at least: half precision is too coarse for sums over thousands of tokens.
    upcast = True
    batch_parts = 4
    spans = SPANS
    forward = in_spans(ProjectedAttention.forward)

    def __init__(self, size: Size, *, feature_dim: Count = 16, chunk: Count = 64) -> None:
        super().__init__(size)
        self.feature_dim, self.chunk = feature_dim, chunk
        width = size.heads * feature_dim
        wide = width + size.dim
        self.query, self.query_conv = nn.Linear(size.dim, width), ShortConvolution(size, width)
        self.context, self.context_conv = nn.Linear(size.dim, wide), ShortConvolution(size, wide)

    def attend(self, q: Queries, k: Keys, v: Values, mask: Mask) -> Outputs:
        queries, keys = features(q), zero_padding(features(k), mask)
        return causal_sum.mean(queries, keys, v, self.size.causal, self.chunk)

    def head_flops(self, n: int) -> int:
        width = 1 + self.feature_dim * (self.feature_dim + 3) // 2
        return 2 * n * width * (2 * self.size.head_dim + 1)

    def begin(self, batch: int) -> State:
        # The sums of phi(k_j) [v_j, 1]^T.
        width = 1 + self.feature_dim * (self.feature_dim + 3) // 2
        return (self.zero_state(batch, self.size.heads, width, self.size.head_dim + 1),)

    def attend_after(
        self, q: Queries, k: Keys, v: Values, real: Mask, state: State
    ) -> tuple[Outputs, State]:
        queries, keys = features(q), zero_padding(features(k), real)
        heads, sums = causal_sum.mean_after(queries, keys, v, state[0], self.chunk)
        return heads, (sums,)


def features(x: Float[Tensor, "*any e"]) -> Float[Tensor, "*any f"]:
    width = x.shape[-1]
    x = x * width**-0.25
    a, b = torch.triu_indices(width, width, 1, device=x.device)
    # `index_select`: indexing and its gradient take 1.5 times the time.
    products = x.index_select(-1, a) * x.index_select(-1, b)
    return torch.cat([torch.ones_like(x[..., :1]), x, x.square() * 0.5**0.5, products], dim=-1)
