"""Softmax attention in a sliding window, block by block.

Queries in blocks of `window` tokens attend to keys of the same block, the one before and, unless
causal, the one after; a mask restricts that to `window` tokens on each side. Global tokens, if any,
come before the keys of every block, and every query attends to them. Time O(n (3 window + globals)
e); memory O(n) and a mask of O(n (3 window + globals)) per sample for all heads. The fused kernel
of `scaled_dot_product_attention` stores no weights.

Axis letters beyond the contract's: `t` blocks, `c` tokens of a block, `s` tokens of the blocks that
it attends to, `l` global tokens, `w` keys of a block, l + s.
"""

from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Queries
from zoo.kernels.blocks import block_count, block_size, from_blocks, in_blocks
from zoo.recompute import sample_by_sample

RealCount = Int[Tensor, " #b"]  # The number of real tokens of each sample, or one number for all


def windowed_attention(
    q: Queries, k: Queries, v: Queries, count: RealCount, window: int, *, causal: bool = False,
    global_tokens: int = 0, dropout: float = 0.0,
) -> Queries:  # fmt: skip
    """Attend within the window and to the global tokens; a query without any key returns zero."""
    # Of each sample the first `count` tokens are real. The window has `window` tokens on each side,
    # at least 1, or ends at the query if `causal`. The first `global_tokens` tokens, at most n, are
    # global: for all queries, or for those that are not before them if `causal`.
    n = q.shape[2]
    block = block_size(window, n)
    blocks = block_count(n, block)
    position = torch.arange(blocks * block, device=q.device).unflatten(0, (blocks, block))
    offsets = [0] if blocks == 1 else [-1, 0] if causal else [-1, 0, 1]
    nearby = torch.cat([position + offset * block for offset in offsets], dim=-1)
    mask = window_mask(position, nearby, count, window, causal, global_tokens)
    # As numbers, which is how the backward pass stores it: once for all samples alike.
    bias = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, -torch.inf)
    attend = partial(
        _attend, block=block, offsets=offsets, global_tokens=global_tokens, dropout=dropout
    )
    return sample_by_sample(attend, q, k, v, bias, again=False)


def _attend(
    q: Queries, k: Queries, v: Queries, bias: Float[Tensor, "#b t c w"],
    block: int, offsets: list[int], global_tokens: int, dropout: float,
) -> Queries:  # fmt: skip
    batch, n = q.shape[0], q.shape[2]
    q = in_blocks(q, block)
    blocks = q.shape[2]
    keys, values = (neighbours(part, block, offsets, global_tokens) for part in (k, v))
    # Blocks are flattened into the batch, so that all heads share the bias of a block.
    q, keys, values = (x.transpose(1, 2).flatten(0, 1) for x in (q, keys, values))
    bias = bias.expand(batch, -1, -1, -1).flatten(0, 1)[:, None]
    out = F.scaled_dot_product_attention(q, keys, values, attn_mask=bias, dropout_p=dropout)
    return from_blocks(out.unflatten(0, (batch, blocks)).transpose(1, 2), n)


def neighbours(
    x: Queries, block: int, offsets: list[int], global_tokens: int
) -> Float[Tensor, "b h t w e"]:
    tail = block_count(x.shape[2], block) * block - x.shape[2]
    ends = -offsets[0] * block, offsets[-1] * block + tail
    nearby = F.pad(x, (0, 0, *ends)).unfold(2, len(offsets) * block, block).mT
    if not global_tokens:
        return nearby
    first = x[:, :, None, :global_tokens].expand(-1, -1, nearby.shape[2], -1, -1)
    return torch.cat([first, nearby], dim=3)


def window_mask(
    position: Int[Tensor, "t c"], nearby: Int[Tensor, "t s"], count: RealCount, window: int,
    causal: bool, global_tokens: int,
) -> Bool[Tensor, "#b t c w"]:  # fmt: skip
    # The same in every block.
    offset = nearby[:1, None, :] - position[:1, :, None]
    in_window = (offset >= -window) & (offset <= (0 if causal else window))
    # A global token within the window counts once: as a global token.
    real = (nearby >= global_tokens) & (nearby < count[:, None, None])
    local = in_window & real[:, :, None, :]
    if not global_tokens:
        return local
    token = torch.arange(global_tokens, device=count.device)
    shared = (token < count[:, None])[:, None, None, :].expand(-1, *position.shape, -1)
    if causal:
        shared = shared & (token <= position[..., None])
    return torch.cat([shared, local], dim=-1)
