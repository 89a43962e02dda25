"""Which keys each query may see."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention_mask(
    q: Float[Tensor, "b h n e"],
    k: Float[Tensor, "b h m e"],
    mask: Bool[Tensor, "b m"] | None,
    causal: bool,
) -> Bool[Tensor, "#b 1 #n m"] | None:
    """Which keys each query may see, broadcast over heads; None where it may see them all."""
    allowed = None if mask is None else mask[:, None, None, :]
    if causal:
        past = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
        allowed = past[None, None] if allowed is None else allowed & past
    return allowed
