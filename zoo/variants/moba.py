"""MoBA, mixture of block attention: softmax over a few blocks for each query.

Lu et al., "MoBA: Mixture of Block Attention for Long-Context LLMs", 2025, arXiv 2502.13189. Tokens
are in blocks of B. With kbar_b the mean of the keys of block b, a query of block a attends to

    a, and the blocks b < a of the topk - 1 largest products q_i . kbar_b

    out_i = sum_j softmax_j(q_i . k_j / sqrt(e)) v_j        over j <= i in these blocks

The choice has no gradient. On a CPU, the queries of each block are sorted into tiles of `TILE`, and
a tile attends to its block; the outputs of the blocks of a query are summed by the sums of their
exponentials (FlashAttention, arXiv 2205.14135). Time O(n (topk B + n / B) e), as the kernels of the
paper, memory O(n topk e). Elsewhere, and for a few blocks, weights of all blocks are computed, and
masked: the definition, with time O(n^2 e) and memory O(n^2 h).

With topk blocks or fewer it is softmax attention, with topk = 1 attention within blocks. A sample
whose products nearly tie has another output after rounding: outputs in half precision and in fp32
can be far apart.

Deviations: positions are ranks among the real tokens of a sample. Ties are decided by `torch.topk`.
Projections have a bias. The paper has blocks of 512 and topk = 3 for 8,192 tokens.
"""

from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Count, Identity, Keys, Mask, Queries, Size, Traits
from zoo.kernels import eager
from zoo.kernels.blocks import in_blocks
from zoo.kernels.real_tokens import with_real_tokens_first
from zoo.projected import ProjectedAttention
from zoo.recompute import recomputed, sample_by_sample
from zoo.variants import variants

TILE = 32  # Queries of a tile: each block has on average half a tile that is empty
TILES = 128  # Tiles that are computed at a time, and again in the backward pass
DENSE = 4  # With up to this many times `topk` blocks all weights are computed, which is faster
ROWS = 1024  # Queries whose blocks are chosen at a time


class Tiles(NamedTuple):
    # Queries sorted by the block that they attend to, in tiles of one block each. Groups g are
    # heads of samples; tiles, rows and slots are counted through all groups.
    query: Int[Tensor, "tiles c"]  # The queries of each tile, as rows; some stand for none
    block: Int[Tensor, " tiles"]  # The block of each tile
    slot: Int[Tensor, "g n k"]  # The place of each query and choice in the tiles
    real: Bool[Tensor, "g n k"]  # Whether a choice is no later block


@variants.register("moba")
class BlockAttention(ProjectedAttention):
    """Softmax attention to the block of the query, and to past blocks that it selects.

    Axis letters beyond the contract's: `t` blocks.

    Args:
        block: B, the tokens of a block.
        topk: the blocks that a query attends to, the block of the query included.
    """

    version = "1.0"
    family = "sparse"
    traits = Traits.causal_only(linear=False, stochastic=False, recurrent=False)
    identities = (
        Identity(other="softmax", where="topk * block >= n", options={"block": 16, "topk": 16}),
    )
    caches = True
    drops_weights = True

    def __init__(self, size: Size, *, block: Count = 64, topk: Count = 3) -> None:
        super().__init__(size)
        self.block, self.topk = block, topk

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask) -> Queries:
        return with_real_tokens_first(self._attend, mask, q, k, v)

    def _attend(self, q: Queries, k: Keys, v: Keys, count: Tensor) -> Queries:
        if eager.on_cpu(q) and q.shape[2] > DENSE * self.topk * self.block:
            return self.in_tiles(q, k, v)
        return sample_by_sample(self.masked, q, k, v)

    def masked(self, q: Queries, k: Keys, v: Keys) -> Queries:
        # The definition: the weights of all keys, with other blocks masked.
        position = torch.arange(q.shape[2], device=q.device)
        with torch.no_grad():
            selected = self._selected(q @ in_blocks(k, self.block).sum(3).mT, position)
            visible = selected.index_select(3, position // self.block)
            visible = visible & (position <= position[:, None])
        return F.scaled_dot_product_attention(q, k, v, attn_mask=visible, dropout_p=self.dropout)

    def in_tiles(self, q: Queries, k: Keys, v: Keys) -> Queries:
        (batch, heads, n, width), blocks = q.shape, -(-q.shape[2] // self.block)
        with torch.no_grad():
            sums = in_blocks(k, self.block).sum(3)
            chosen = torch.cat([
                self._chosen(queries @ sums.mT, position)
                for queries, position in zip(
                    q.split(ROWS, 2), torch.arange(n).split(ROWS), strict=True
                )
            ], dim=2)  # fmt: skip
            tiles = tiled(chosen.flatten(0, 1), self.block, blocks)
        rows, keys = q.reshape(-1, width), in_blocks(k, self.block).reshape(-1, self.block, width)
        values = in_blocks(v, self.block).reshape(-1, self.block, width)
        attend = partial(_attend_tiles, n=n, dropout=self.dropout)
        parts = zip(tiles.query.split(TILES), tiles.block.split(TILES), strict=True)
        outputs = [recomputed(attend, rows, keys, values, *part) for part in parts]
        out, logarithms = (torch.cat(each).flatten(0, 1) for each in zip(*outputs, strict=True))
        weights = logarithms[tiles.slot].masked_fill(~tiles.real, -torch.inf).softmax(-1)
        of_blocks = out.index_select(0, tiles.slot.flatten()).unflatten(0, weights.shape)
        return (weights[..., None, :] @ of_blocks).unflatten(0, (batch, heads))[..., 0, :]

    def _chosen(
        self, scores: Float[Tensor, "b h n t"], position: Int[Tensor, "*#b n"]
    ) -> Int[Tensor, "b h n k"]:
        # From products with means of keys or sums; later blocks if there are few.
        block = torch.arange(scores.shape[-1], device=scores.device)
        of_query = (position // self.block)[..., None]
        scores = scores.masked_fill(block > of_query, -torch.inf)
        scores = scores.masked_fill(block == of_query, torch.inf)
        return F.pad(scores, (0, self.topk), value=-torch.inf).topk(self.topk, dim=-1).indices

    def _selected(
        self, scores: Float[Tensor, "b h n t"], position: Int[Tensor, "*#b n"]
    ) -> Bool[Tensor, "b h n t"]:
        selected = torch.zeros_like(scores, dtype=torch.bool)
        selected = F.pad(selected, (0, self.topk)).scatter(-1, self._chosen(scores, position), True)
        return selected[..., : scores.shape[-1]]

    def weigh(
        self, products: Float[Tensor, "b h 1 m"], real: Bool[Tensor, "b 1 1 m"]
    ) -> Float[Tensor, "b h 1 m"]:
        # A product with a sum of keys is a sum of products.
        m, count = products.shape[-1], real.sum(-1, keepdim=True)
        token = torch.arange(m, device=products.device)
        # Blocks are counted from the first real key, which is moved to the front.
        first = (token + m - count).remainder(m).expand_as(products)
        moved = products.gather(-1, first).masked_fill(token >= count, 0.0)
        scores = F.pad(moved, (0, -m % self.block)).unflatten(-1, (-1, self.block)).sum(-1)
        selected = self._selected(scores, count[..., 0] - 1)
        visible = selected.repeat_interleave(self.block, dim=3)[..., :m]
        back = (token + count).remainder(m).expand_as(products)
        return products.masked_fill(~(visible.gather(-1, back) & real), -torch.inf).softmax(-1)


def tiled(chosen: Int[Tensor, "g n k"], size: int, blocks: int) -> Tiles:
    groups, n, k = chosen.shape
    real = chosen <= (torch.arange(n) // size)[:, None]
    # Choices that are none go behind all blocks.
    pairs = chosen.where(real, blocks).flatten(1)
    order = pairs.argsort(dim=1, stable=True)
    ranked = pairs.gather(1, order)
    counts = torch.zeros(groups, blocks + 1, dtype=torch.long).scatter_add(
        1, pairs, torch.ones_like(pairs)
    )
    used = -(-counts // TILE)
    used[:, blocks] = 0
    total = n * k // TILE + blocks
    rank = torch.arange(n * k) - (counts.cumsum(1) - counts).gather(1, ranked)
    slot = (used.cumsum(1) - used).gather(1, ranked) * TILE + rank
    # One slot more is for those.
    slot = slot.where(ranked < blocks, total * TILE)
    queries = torch.zeros(groups, total * TILE + 1, dtype=torch.long).scatter(1, slot, order // k)
    block = (torch.arange(total)[:, None] >= used.cumsum(1)[:, None, :blocks]).sum(-1)
    group = torch.arange(groups)[:, None]
    slot = torch.zeros_like(slot).scatter(1, order, slot.clamp_max(total * TILE - 1))
    return Tiles(
        query=(queries[:, :-1] + n * group).view(-1, TILE),
        block=(block.clamp_max(blocks - 1) + blocks * group).flatten(),
        slot=(slot + total * TILE * group).view(groups, n, k), real=real.expand(groups, n, k),
    )  # fmt: skip


def _attend_tiles(
    rows: Float[Tensor, "rows e"], keys: Float[Tensor, "blocks s e"],
    values: Float[Tensor, "blocks s e"], query: Int[Tensor, "tiles c"],
    of_keys: Int[Tensor, " tiles"], *, n: int, dropout: float,
) -> tuple[Float[Tensor, "tiles c e"], Float[Tensor, "tiles c"]]:  # fmt: skip
    # Outputs, and the logarithms of the sums of weights.
    size, blocks = keys.shape[1], len(keys) * n // len(rows)
    q = rows.index_select(0, query.flatten()).unflatten(0, query.shape) * rows.shape[1] ** -0.5
    scores = q @ keys.index_select(0, of_keys).mT
    # All keys of past blocks are visible. Rows that stand for no query see later blocks, too.
    query, block = query % n, (of_keys % blocks)[:, None]
    later = torch.arange(size) > (query % size)[..., None]
    scores = scores.masked_fill(later & (query // size == block)[..., None], -torch.inf)
    logarithms = scores.logsumexp(-1)
    weights = F.dropout((scores - logarithms[..., None]).exp(), dropout)
    return weights @ values.index_select(0, of_keys), logarithms
