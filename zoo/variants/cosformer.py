"""cosFormer: linear attention whose weights decrease with distance as a cosine.

Qin et al., "cosFormer: Rethinking Softmax in Attention", ICLR 2022, arXiv 2202.08791, section 3
(ReLU features, and the re-weighting by cosines):

    w_ij = (relu(q_i) . relu(k_j)) cos(pi/2 (i - j) / M)
    out_i = sum_j w_ij v_j / sum_j w_ij

where j runs over the real tokens, and up to i in the causal form. With t_i = pi/2 i / M,

    cos(t_i - t_j) = cos t_i cos t_j + sin t_i sin t_j

so the weights are products of features [relu(x) cos t, relu(x) sin t], all of them nonnegative, as
0 <= t < pi/2: no terms cancel. Time O(n e^2) and memory O(n e) per head; for the causal form see
`zoo.kernels.causal_sum`.

Deviations: M is `max_len`, where the paper takes the length of the sequence: then padding would
change the cosine, and in the causal form M would depend on future tokens. Positions are ranks among
the real tokens, so that padding changes none. The two agree on sequences of full length without
padding. The published code also keeps the denominator above 1e-6; here a query whose every weight
is zero, such as one without a positive coordinate, returns zero, and all others get the formula.
Self-attention only: between two sequences `i - j` has no meaning.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.contract import Count, Keys, Mask, Positions, Queries, Size, State, Traits
from zoo.kernels import causal_sum, feature_sum
from zoo.kernels.feature_sum import Part
from zoo.kernels.real_tokens import count_after, positions_after, token_ranks, zero_padding
from zoo.projected import ProjectedAttention
from zoo.spans import in_spans
from zoo.variants import variants

Angles = Float[Tensor, "#b 1 n 1"]


@variants.register("cosformer")
class CosFormer(ProjectedAttention):
    """Attention with weights `(relu(q_i) . relu(k_j)) cos(pi/2 (i - j) / M)`, normalised over j.

    Axis letters beyond the contract's: `f` features, 2e of them.
    """

    version = "1.0"
    traits = Traits(causal=True, cross=False, linear=True, stochastic=False, recurrent=True)
    family = "kernel"
    # fp32 at least: half precision cannot distinguish neighbouring angles of a long sequence.
    upcast = True
    spans = 10 / 3
    forward = in_spans(ProjectedAttention.forward)

    def __init__(self, size: Size, *, chunk: Count = 64) -> None:
        """`chunk`: tokens of a causal block; the result does not depend on it. M is `max_len`."""
        super().__init__(size)
        self.chunk = chunk

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask) -> Queries:
        n = q.shape[-2]
        rank = torch.arange(n, device=q.device)[None] if mask is None else token_ranks(mask)
        angle = self._angles(rank, q.dtype)
        if not self.size.causal and feature_sum.suits(q, k):
            of_queries, of_keys = (Features(2 * q.shape[-1], angle, m) for m in (None, mask))
            return feature_sum.mean(of_queries, of_keys, q, k, v)
        queries, keys = features(q, angle), zero_padding(features(k, angle), mask)
        return causal_sum.mean(queries, keys, v, self.size.causal, self.chunk)

    def head_flops(self, n: int) -> int:
        return 2 * n * 2 * (2 * self.size.head_dim**2 + self.size.head_dim)

    def begin(self, batch: int) -> State:
        # Sums of features and [v_j, 1]^T, and their number.
        heads, width = self.size.heads, self.size.head_dim
        return self.zero_state(batch, heads, 2 * width, width + 1), self.zero_state(batch).long()

    def attend_after(
        self, q: Queries, k: Keys, v: Keys, real: Mask, state: State
    ) -> tuple[Queries, State]:
        # Beyond `max_len` the position stays the last.
        (sums, count), n = state, q.shape[2]
        angle = self._angles(positions_after(count, n).clamp_max(self.size.max_len - 1), q.dtype)
        queries, keys = features(q, angle), zero_padding(features(k, angle), real)
        heads, sums = causal_sum.mean_after(queries, keys, v, sums, self.chunk)
        return heads, (sums, count_after(count, n, real))

    def _angles(self, rank: Positions, dtype: torch.dtype) -> Angles:
        # t, from 0 at the first real token to less than pi/2.
        return (rank.to(dtype) * (math.pi / 2 / self.size.max_len))[:, None, :, None]


@dataclass(frozen=True)
class Features(feature_sum.FeatureMap):
    """`features`, zero where a mask is False."""

    features: int
    angle: Angles
    mask: Mask

    def __call__(self, x: Tensor, part: Part) -> Tensor:
        mask = None if self.mask is None else self.mask[part]
        return zero_padding(features(x, feature_sum.select(self.angle, part)), mask)

    def vjp(self, x: Tensor, features: Tensor, gradient: Tensor, part: Part, out: Tensor) -> None:
        angle, (cosine, sine) = feature_sum.select(self.angle, part), gradient.chunk(2, dim=-1)
        positive = features[..., : x.shape[-1]] > 0
        torch.mul((cosine * angle.cos()).addcmul_(sine, angle.sin()), positive, out=out)


def features(x: Queries, angle: Angles) -> Float[Tensor, "b h n f"]:
    x = x.relu()
    return torch.cat([x * angle.cos(), x * angle.sin()], dim=-1)
