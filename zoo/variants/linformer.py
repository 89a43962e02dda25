"""Linformer: softmax attention to a fixed number of projected keys and values.

Wang et al., "Linformer: Self-Attention with Linear Complexity", 2020, arXiv 2006.04768, equation 7.
With E and F of r rows and a column for each position,

    out = softmax(q (E k)^T / sqrt(e)) (F v)

Time O(n r e) and memory O(n r) per head when literal, O(n + r) in the fused kernels; the parameters
grow with `max_len`.

The column of a real token is its rank among the real tokens of its sample, and a padded token has
none: neither the amount nor the position of padding matters. Fewer tokens than `max_len` use the first
columns.

Deviations: E and F are initialised as N(0, 1 / (r + max_len)), so that a projected key is about as
large as a key; the N(0, 1 / r) of the paper's theorem makes it sqrt(n / r) times larger, and the
scores with it. There is no sharing between layers: a layer has no access to others. A sample
without real tokens returns zero.
"""

from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from zoo.contract import Count, Keys, Mask, Queries, Size, Traits, Unsupported
from zoo.kernels.real_tokens import gather_tokens, real_tokens_first, zero_padding
from zoo.projected import ProjectedAttention
from zoo.variants import variants


@variants.register("linformer")
class Linformer(ProjectedAttention):
    """Softmax attention to r mixtures of tokens, with learned weights for each position."""

    traits = Traits(causal=False, cross=True, linear=True, stochastic=False, recurrent=False)

    def __init__(
        self,
        size: Size,
        *,
        rank: Count = 256,
        sharing: Literal["none", "headwise", "kv"] = "headwise",
    ) -> None:
        """Draw E and F.

        Args:
            size: see `Size`.
            rank: r, the number of projected keys. More than `max_len` is allowed, and wasteful.
            sharing: `none` gives every head an E and an F; `headwise` one E and one F to all heads;
                `kv` one matrix to all heads, for keys and values alike.
        """
        super().__init__(size)
        sides = 1 if sharing == "kv" else 2
        heads = size.heads if sharing == "none" else 1
        normal = torch.randn(sides, heads, rank, size.max_len)
        self.projections = nn.Parameter(normal * (rank + size.max_len) ** -0.5)

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask | None) -> Queries:
        """See `ProjectedAttention.attend`.

        Raises:
            Unsupported: there are more keys than `max_len`.
        """
        m = k.shape[2]
        if m > self.size.max_len:
            raise Unsupported(
                f"linformer got {m} tokens, and has columns for max_len={self.size.max_len}; "
                "build it with a larger max_len"
            )
        if mask is not None:
            order, _ = real_tokens_first(mask)
            k, v = (gather_tokens(zero_padding(part, mask), order) for part in (k, v))
        # Indexed from both ends: `kv` has one matrix, which is the first and the last.
        e, f = self.projections[0, ..., :m], self.projections[-1, ..., :m]
        return F.scaled_dot_product_attention(q, e @ k, f @ v, dropout_p=self.dropout)
