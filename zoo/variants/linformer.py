"""Linformer: softmax attention to a fixed number of projected keys and values.

Wang et al., "Linformer: Self-Attention with Linear Complexity", 2020, arXiv 2006.04768, equation 7.
With E and F of r rows and a column for each position,

    out = softmax(q (E k)^T / sqrt(e)) (F v)

Time O(n r e) and memory O(n r) per head by the formula, O(n + r) in the fused kernels; the
parameters grow with `max_len`.

The column of a token is its index among the real tokens of its sample; padding has none, so that
neither the amount of padding nor its position matters. Fewer tokens than `max_len` use the first
columns.

Deviations, with which short training works (docs/decisions/contract.md):

* Every row of E and F starts as the mean of a segment of about max_len / r neighbouring positions,
  the mean pooling of the paper's Section 4, and not as N(0, 1 / r).
* The parameters are E and F times sqrt(r + max_len). AdamW changes each parameter by about the
  learning rate, all of a row alike, and a projected key adds up max_len such changes.

E and F are not shared between layers. A sample without real tokens returns zero.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Count, Keys, Mask, Queries, Size, Traits
from zoo.kernels.real_tokens import gather_tokens, real_tokens_first, zero_padding
from zoo.projected import ProjectedAttention
from zoo.variants import variants
from zoo.variants.softmax import FUSED


@variants.register("linformer")
class Linformer(ProjectedAttention):
    """Softmax attention to r linear combinations of tokens, with learned weights by position.

    Args:
        rank: r, the number of projected keys. More than `max_len` is allowed, but not useful:
            rows then start equal, and equal rows stay equal.
        sharing: `none` for an E and an F of each head; `headwise` for one E and one F of all
            heads; `kv` for one matrix of all heads, used for keys and values.
    """

    version = "1.0"
    traits = Traits(causal=False, cross=True, linear=True, stochastic=False, recurrent=False)
    family = "low rank"
    gpu_kernels = FUSED
    drops_weights = True

    def __init__(
        self,
        size: Size,
        *,
        rank: Count = 256,
        sharing: Literal["none", "headwise", "kv"] = "headwise",
    ) -> None:
        super().__init__(size)
        sides = 1 if sharing == "kv" else 2
        heads = size.heads if sharing == "none" else 1
        self.scale = (rank + size.max_len) ** -0.5
        means = segment_means(rank, size.max_len) / self.scale
        self.projections = nn.Parameter(means.repeat(sides, heads, 1, 1))

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask) -> Queries:
        m = k.shape[2]
        if mask is not None:
            order, _ = real_tokens_first(mask)
            k, v = (gather_tokens(zero_padding(part, mask), order) for part in (k, v))
        # An exported graph with a slice would not serve m = max_len, where that is no slice.
        columns = torch.arange(m, device=k.device) if torch.compiler.is_exporting() else slice(m)
        # Indexed from both ends: `kv` has one matrix, which is the first and the last.
        e, f = (self.scale * self.projections[side, ..., columns] for side in (0, -1))
        return F.scaled_dot_product_attention(q, e @ k, f @ v, dropout_p=self.dropout)

    def head_flops(self, n: int) -> int:
        # E k, F v, the scores, and their product with F v.
        return 4 * 2 * n * len(self.projections[0, 0]) * self.size.head_dim


def segment_means(rank: int, length: int) -> Float[Tensor, "r n"]:
    # The matrix whose row i averages the tokens from i n / r to (i + 1) n / r, and at least one.
    # Where r does not divide n, segments overlap by one token, as in `F.adaptive_avg_pool1d`.
    row, position = torch.arange(rank)[:, None], torch.arange(length)
    segment = (position >= row * length // rank) & (position * rank < (row + 1) * length)
    return segment / segment.sum(1, keepdim=True)
