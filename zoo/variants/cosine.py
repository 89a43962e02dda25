"""Cosine attention: weights cos(q, k), scaled by a learned power of the length.

Mongaras, Dohm, Larson, "Cottention: Linear Transformers With Cosine Attention", 2024, arXiv
2409.18747, equations 3 and 4. With u^ = u / |u|, R the number of real tokens that query i attends
to and one learned m per head, 0.5 at first,

    out_i = R^(-sigmoid(m)) sum_j (q^_i . k^_j) v_j

where j runs over the real tokens. Weights lie in [-1, 1] and are not normalised: their sum can grow
to R, and the learned factor R^(-sigmoid(m)) scales it by between 1 (a sum) and 1 / R (a mean). Time
O(n e^2) and memory O(n e) per head; for the causal form, with j and R up to i, see
`zoo.kernels.causal_sum`.

Deviations: the length is the number of real tokens. The paper does not say where the power is
applied in the causal form; its code divides v_j by the power of the j tokens before it, which gives
early values more weight in every later sum. Here the sum of query i is divided, by the power of the
i tokens in it, so that the bound above holds for each. A norm below 1e-12 is replaced by 1e-12. A
query without real keys returns zero.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Count, Keys, Mask, Queries, Size, State, Traits
from zoo.kernels import causal_sum, feature_sum
from zoo.kernels.feature_sum import Part
from zoo.kernels.precision import TINY
from zoo.kernels.real_tokens import count_after, positions_after, zero_padding
from zoo.projected import ProjectedAttention
from zoo.spans import in_spans
from zoo.variants import variants

Sums = Float[Tensor, "b h _ e"]


@variants.register("cosine")
class Cosine(ProjectedAttention):
    """Attention with weights `cos(q_i, k_j)`, scaled by a learned power of their number."""

    version = "1.0"
    traits = Traits(causal=True, cross=True, linear=True, stochastic=False, recurrent=True)
    family = "kernel"
    # fp32 at least: squares overflow half precision, and the sums run over thousands of tokens.
    upcast = True
    spans = 8 / 3
    forward = in_spans(ProjectedAttention.forward)

    def __init__(self, size: Size, *, chunk: Count = 64) -> None:
        """`chunk`: tokens of a causal block; the result does not depend on it."""
        super().__init__(size)
        self.chunk = chunk
        self.power = nn.Parameter(torch.full((size.heads,), 0.5))

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask) -> Queries:
        real = v.new_ones(1, v.shape[-2], dtype=torch.bool) if mask is None else mask
        count = real.cumsum(1) if self.size.causal else real.sum(1, keepdim=True)
        if not self.size.causal and feature_sum.suits(q, k):
            state = feature_sum.store(Unit(k.shape[-1], mask), k, v, ones=False)
            # All queries of a sample have one factor: here the state has it.
            state = self._scaled(state, count.clamp_min(1))
            return feature_sum.read(Unit(q.shape[-1], None), q, state, mean=False)
        queries, keys = F.normalize(q, dim=-1), zero_padding(F.normalize(k, dim=-1), mask)
        sums = causal_sum.total(queries, keys, v, self.size.causal, self.chunk)
        return self._scaled(sums, count.clamp_min(1))

    def head_flops(self, n: int) -> int:
        # K^^T v, and its product with q^.
        return 2 * n * 2 * self.size.head_dim**2

    def begin(self, batch: int) -> State:
        # The sums of k^_j v_j^T, and the number of tokens.
        heads, width = self.size.heads, self.size.head_dim
        return self.zero_state(batch, heads, width, width), self.zero_state(batch).long()

    def attend_after(
        self, q: Queries, k: Keys, v: Keys, real: Mask, state: State
    ) -> tuple[Queries, State]:
        (sums, count), n = state, q.shape[2]
        queries, keys = F.normalize(q, dim=-1), zero_padding(F.normalize(k, dim=-1), real)
        heads, sums = causal_sum.total_after(queries, keys, v, sums, self.chunk)
        heads = self._scaled(heads, positions_after(count, n) + 1)
        return heads, (sums, count_after(count, n, real))

    def _scaled(self, sums: Sums, count: Int[Tensor, "#b #n"]) -> Sums:
        # The sums, or the state that they are read from, times R^(-sigmoid(m)).
        power = self.power.to(sums.dtype).sigmoid()[:, None, None]
        return sums * count.to(sums.dtype)[:, None, :, None] ** -power


@dataclass(frozen=True)
class Unit(feature_sum.FeatureMap):
    """Tokens divided by their norm, zero where a mask is False."""

    features: int
    mask: Mask

    def __call__(self, x: Tensor, part: Part) -> Tensor:
        return zero_padding(F.normalize(x, dim=-1), self._mask(part))

    def vjp(self, x: Tensor, features: Tensor, gradient: Tensor, part: Part, out: Tensor) -> None:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        radial = (gradient * features).sum(-1, keepdim=True).masked_fill_(norm < TINY, 0.0)
        tangential = zero_padding(gradient.addcmul_(features, radial, value=-1), self._mask(part))
        torch.div(tangential, norm.clamp_min_(TINY), out=out)

    def _mask(self, part: Part) -> Mask:
        return None if self.mask is None else self.mask[part]
