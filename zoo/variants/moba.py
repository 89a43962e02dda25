"""MoBA, mixture of block attention: softmax over a few blocks for each query.

Lu et al., "MoBA: Mixture of Block Attention for Long-Context LLMs", 2025, arXiv 2502.13189. Tokens
are in blocks of B. With kbar_b the mean of the keys of block b, a query of block a attends to

    a, and the blocks b < a of the topk - 1 largest products q_i . kbar_b

    out_i = sum_j softmax_j(q_i . k_j / sqrt(e)) v_j        over j <= i in these blocks

The choice has no gradient. Time O(n^2 e), memory O(n^2 h): weights of other blocks are computed,
and masked. The kernels of the paper, for GPUs, need O(n (topk B + n / B) e); so does a step after
the products of the query with all keys.

With topk blocks or fewer it is softmax attention, with topk = 1 attention within blocks. A sample
whose products nearly tie has another output after rounding: outputs in half precision and in fp32
can be far apart.

Deviations: positions are ranks among the real tokens of a sample. Ties are decided by `torch.topk`.
Projections have a bias. The paper has blocks of 512 and topk = 3 for 8,192 tokens.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Count, Identity, Keys, Mask, OneToken, Queries, Size, State, Traits
from zoo.kernels import key_value_cache
from zoo.kernels.blocks import in_blocks
from zoo.kernels.real_tokens import with_real_tokens_first
from zoo.projected import ProjectedAttention
from zoo.recompute import sample_by_sample
from zoo.variants import variants


@variants.register("moba")
class BlockAttention(ProjectedAttention):
    """Softmax attention to the block of the query, and to past blocks that it selects.

    Axis letters beyond the contract's: `t` blocks.
    """

    family = "sparse"
    traits = Traits.causal_only(linear=False, stochastic=False, recurrent=False)
    identities = (
        Identity(other="softmax", where="topk * block >= n", options={"block": 16, "topk": 16}),
    )
    caches = True
    drops_weights = True

    def __init__(self, size: Size, *, block: Count = 64, topk: Count = 3) -> None:
        """Make the projections.

        Args:
            size: see `Size`.
            block: B, the tokens of a block.
            topk: the blocks that a query attends to, the block of the query included.
        """
        super().__init__(size)
        self.block, self.topk = block, topk

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask | None) -> Queries:
        """See `ProjectedAttention.attend`."""
        return with_real_tokens_first(
            lambda q, k, v, _: sample_by_sample(self._attend, q, k, v), mask, q, k, v
        )

    def _attend(self, q: Queries, k: Keys, v: Keys) -> Queries:
        """Attend among tokens; padded tokens come last."""
        n = q.shape[2]
        position = torch.arange(n, device=q.device)
        with torch.no_grad():
            sums = in_blocks(k, self.block).sum(3)
            selected = self._selected(q @ sums.mT, position)
            visible = selected.index_select(3, position // self.block)
            visible = visible & (position <= position[:, None])
        return F.scaled_dot_product_attention(q, k, v, attn_mask=visible, dropout_p=self.dropout)

    def _selected(
        self, scores: Float[Tensor, "b h n t"], position: Int[Tensor, "*#b n"]
    ) -> Bool[Tensor, "b h n t"]:
        """True for the blocks a query attends to, from its products with means of keys or sums."""
        block = torch.arange(scores.shape[-1], device=scores.device)
        of_query = (position // self.block)[..., None]
        scores = scores.masked_fill(block > of_query, -torch.inf)
        scores = scores.masked_fill(block == of_query, torch.inf)
        # topk blocks more, so that there are topk: blocks after the query are masked later.
        scores = F.pad(scores, (0, self.topk), value=-torch.inf)
        chosen = scores.topk(self.topk, dim=-1).indices
        selected = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, chosen, True)
        return selected[..., : block.shape[0]]

    def recur(self, q: OneToken, k: OneToken, v: OneToken, state: State) -> tuple[OneToken, State]:
        """See `ProjectedAttention.recur`."""
        state = key_value_cache.append(state, k, v)
        scaled = q * self.size.head_dim**-0.5
        return key_value_cache.attend(state, scaled, self._weigh), state

    def attend_after(
        self, q: Queries, k: Keys, v: Keys, real: Mask | None, state: State
    ) -> tuple[Queries, State]:
        """See `ProjectedAttention.attend_after`."""
        q, k, v = (part.to(state[0].dtype) for part in (q, k, v))
        *past, state = key_value_cache.extend(state, k, v, real)
        return key_value_cache.attend_after(self.attend, q, k, v, real, *past), state

    def _weigh(
        self, logits: Float[Tensor, "b h 1 m"], real: Bool[Tensor, "b 1 1 m"]
    ) -> Float[Tensor, "b h 1 m"]:
        """The weights of all keys so far: a product with a sum of keys is a sum of products."""
        m, count = logits.shape[-1], real.sum(-1, keepdim=True)
        token = torch.arange(m, device=logits.device)
        # Blocks are counted from the first real key, which is moved to the front.
        first = (token + m - count).remainder(m).expand_as(logits)
        moved = logits.gather(-1, first).masked_fill(token >= count, 0.0)
        scores = F.pad(moved, (0, -m % self.block)).unflatten(-1, (-1, self.block)).sum(-1)
        selected = self._selected(scores, count[..., 0] - 1)
        visible = selected.repeat_interleave(self.block, dim=3)[..., :m]
        back = (token + count).remainder(m).expand_as(logits)
        return logits.masked_fill(~(visible.gather(-1, back) & real), -torch.inf).softmax(-1)
