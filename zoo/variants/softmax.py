"""Softmax attention, the reference that every other variant is compared with.

Vaswani et al., "Attention Is All You Need", 2017, arXiv 1706.03762, equation 1:
`softmax(q k^T / sqrt(e)) v`. Time O(n m e); memory O(n m) when literal, O(n + m) in the fused
kernels behind `scaled_dot_product_attention`.

Deviation: a query whose every key is padded attends to nothing and returns zero, where the formula
is undefined.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Size, Traits
from zoo.projected import ProjectedAttention
from zoo.variants import variants


@variants.register("softmax")
class Softmax(ProjectedAttention):
    """`softmax(q k^T / sqrt(e)) v` by PyTorch's fused kernels, or literally."""

    traits = Traits(causal=True, cross=True, linear=False, stochastic=False, recurrent=False)

    def __init__(self, size: Size, *, backend: Literal["auto", "sdpa", "naive"] = "auto") -> None:
        """Choose how the formula is computed.

        Args:
            size: what every variant is built from.
            backend: `sdpa` for `scaled_dot_product_attention`, `naive` for the literal formula (the
                twin that defines all others), `auto` for the fastest that is usable: `sdpa`.
        """
        super().__init__(size)
        self.attend_by = naive if backend == "naive" else sdpa

    def attend(
        self,
        q: Float[Tensor, "b h n e"],
        k: Float[Tensor, "b h m e"],
        v: Float[Tensor, "b h m e"],
        keep: Bool[Tensor, "b m"] | None,
    ) -> Float[Tensor, "b h n e"]:
        """See `ProjectedAttention.attend`."""
        dropout = self.size.dropout if self.training else 0.0
        return self.attend_by(q, k, v, keep, self.size.causal, dropout)


def naive(
    q: Float[Tensor, "b h n e"],
    k: Float[Tensor, "b h m e"],
    v: Float[Tensor, "b h m e"],
    keep: Bool[Tensor, "b m"] | None,
    causal: bool,
    dropout: float,
) -> Float[Tensor, "b h n e"]:
    """Equation 1 as it is written, with an n x m matrix of weights in memory."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    allowed = visible(q, k, keep, causal)
    if allowed is None:
        weights = scores.softmax(-1)
    else:
        # A finite floor, then zeros: a row with nothing to see becomes 0 and never NaN.
        floor = torch.finfo(scores.dtype).min
        weights = scores.masked_fill(~allowed, floor).softmax(-1).masked_fill(~allowed, 0.0)
    return F.dropout(weights, dropout) @ v


def sdpa(
    q: Float[Tensor, "b h n e"],
    k: Float[Tensor, "b h m e"],
    v: Float[Tensor, "b h m e"],
    keep: Bool[Tensor, "b m"] | None,
    causal: bool,
    dropout: float,
) -> Float[Tensor, "b h n e"]:
    """The same by `torch.nn.functional.scaled_dot_product_attention`."""
    if keep is None:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
    allowed = visible(q, k, keep, causal)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=dropout)


def visible(
    q: Float[Tensor, "b h n e"],
    k: Float[Tensor, "b h m e"],
    keep: Bool[Tensor, "b m"] | None,
    causal: bool,
) -> Bool[Tensor, "#b 1 #n m"] | None:
    """Which keys each query may see, broadcast over heads; None where it may see them all."""
    allowed = None if keep is None else keep[:, None, None, :]
    if causal:
        past = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
        allowed = past[None, None] if allowed is None else allowed & past
    return allowed
