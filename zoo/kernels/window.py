"""Softmax attention in a sliding window, block by block.

Queries in blocks of `window` tokens look at their own block, the one before and, unless causal, the
one after; a mask cuts that to `window` tokens on each side. Leading tokens, if any, stand before
the keys of every block and are seen by all. Time O(n (3 window + leaders) e); memory O(n) beside
the mask, of O(n (3 window + leaders)) per sample for all heads. The fused kernel behind
`scaled_dot_product_attention` keeps no weights.

Axis letters beyond the contract's: `t` blocks, `c` tokens of a block, `s` tokens near it, `l`
leaders, `w` keys that a block looks at, l + s.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F


def windowed(
    q: Float[Tensor, "b h n e"],
    k: Float[Tensor, "b h n e"],
    v: Float[Tensor, "b h n e"],
    count: Int[Tensor, " #b"],
    window: int,
    *,
    causal: bool = False,
    global_tokens: int = 0,
    dropout: float = 0.0,
) -> Float[Tensor, "b h n e"]:
    """Attend within the window and to the leaders; a query with nothing in sight returns zero.

    Args:
        q: queries.
        k: keys, real ones first.
        v: values, real ones first.
        count: real tokens of each sample, or one number for all.
        window: tokens in sight on each side, at least 1.
        causal: whether tokens after the query are out of sight.
        leaders: how many tokens at the front, at most n, are in everybody's sight.
        dropout: probability of dropping a weight.
    """
    batch, n = q.shape[0], q.shape[2]
    block = min(window, n)
    sides = (-1, 0) if causal else (-1, 0, 1)
    q, keys, values = (
        F.pad(part, (0, 0, 0, -n % block)).unflatten(2, (-1, block)) for part in (q, k, v)
    )
    near = [side for side in sides if abs(side) < q.shape[2]]
    keys = look(keys, near, k[:, :, :global_tokens])
    values = look(values, near, v[:, :, :global_tokens])
    place = torch.arange(q.shape[2] * block, device=q.device).unflatten(0, (-1, block))
    sight = torch.cat([place + side * block for side in near], dim=-1)
    seen = window_mask(place, sight, count, window, causal, global_tokens).expand(batch, -1, -1, -1)
    # Blocks stand beside samples, so that all heads share a block's mask.
    parts = (part.transpose(1, 2).flatten(0, 1) for part in (q, keys, values))
    mask = seen.flatten(0, 1)[:, None]
    out = F.scaled_dot_product_attention(*parts, attn_mask=mask, dropout_p=dropout)
    return out.unflatten(0, (batch, -1)).transpose(1, 2).flatten(2, 3)[:, :, :n]


def look(
    blocks: Float[Tensor, "b h t c e"], near: list[int], global_tokens: Float[Tensor, "b h l e"]
) -> Float[Tensor, "b h t w e"]:
    """The leaders, then each block's neighbours `near` it; nothing lies beyond the ends."""
    count = blocks.shape[2]
    padded = F.pad(blocks, (0, 0, 0, 0, 1, 1))
    front = global_tokens[:, :, None].expand(-1, -1, count, -1, -1)
    return torch.cat([front, *(padded[:, :, 1 + side : 1 + side + count] for side in near)], dim=3)


def window_mask(
    place: Int[Tensor, "t c"],
    sight: Int[Tensor, "t s"],
    count: Int[Tensor, " #b"],
    window: int,
    causal: bool,
    global_tokens: int,
) -> Bool[Tensor, "#b t c w"]:
    """Which of the leaders and of the tokens in `sight` the query at a `place` may see."""
    gap = sight[:, None, :] - place[:, :, None]
    seen = (gap >= -window) & (gap <= (0 if causal else window))
    # A leader within the window counts once: as a leader.
    real = (sight >= global_tokens) & (sight < count[:, None, None])
    near = seen & real[:, :, None, :]
    if not global_tokens:
        return near
    front = torch.arange(global_tokens, device=count.device) < count[:, None]
    front = front[:, None, None, :].expand(-1, *place.shape, -1)
    return torch.cat([front, near], dim=-1)
