"""Local attention: softmax over a window that slides along with the query.

The local attention of Child et al., "Generating Long Sequences with Sparse Transformers", 2019,
arXiv 1904.10509, section 4.2, and of Beltagy et al., 2020, arXiv 2004.05150, section 3.1. With
window w, and j over real tokens,

    out_i = sum_{j in S_i} softmax_j(q_i . k_j / sqrt(e)) v_j
    S_i = {j : |i - j| <= w}            2w + 1 tokens
    S_i = {j : i - w <= j <= i}         w + 1 tokens, causal

Time O(n w e) per head and memory O(n w) per sample: `zoo.kernels.window`.

Deviations: positions are ranks among the real tokens of a sample, so that padding in between pushes
no token out of sight. A sample without real tokens returns zero.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Size, State, Traits
from zoo.kernels.real_tokens import gather_tokens, real_first
from zoo.kernels.window import windowed
from zoo.projected import ProjectedAttention
from zoo.registry import require_at_least
from zoo.variants import variants


@variants.register("local")
class Local(ProjectedAttention):
    """Softmax attention to the `window` tokens before a token, itself, and as many after it."""

    traits = Traits(causal=True, cross=False, linear=True, stochastic=False, recurrent=True)

    def __init__(self, size: Size, *, window: int = 64) -> None:
        """Choose the window.

        Args:
            size: what every variant is built from.
            window: w, the tokens in sight on each side beside the token itself; the causal form
                sees those before it only. From n - 1 on, the result is softmax attention.

        Raises:
            UserError: `window` below 1.
        """
        super().__init__(size)
        require_at_least(1, "local", window=window)
        self.window = window

    def attend(
        self,
        q: Float[Tensor, "b h n e"],
        k: Float[Tensor, "b h n e"],
        v: Float[Tensor, "b h n e"],
        mask: Bool[Tensor, "b n"] | None,
    ) -> Float[Tensor, "b h n e"]:
        """See `ProjectedAttention.attend`."""
        dropout = self.size.dropout if self.training else 0.0
        options = {"causal": self.size.causal, "dropout": dropout}
        if mask is None:
            count = torch.full((1,), q.shape[2], device=q.device)
            return windowed(q, k, v, count, self.window, **options)
        order, place = real_first(mask)
        q, k, v = (gather_tokens(part, order) for part in (q, k, v))
        return gather_tokens(windowed(q, k, v, mask.sum(1), self.window, **options), place)

    def begin(self, batch: int) -> State:
        """See `ProjectedAttention.begin`: what is in sight, the latest last, and its count."""
        sight = min(self.window + 1, self.size.max_len)
        shape = self.size.heads, sight, self.size.head_dim
        return (
            self.zero_state(batch, *shape),
            self.zero_state(batch, *shape),
            self.zero_state(batch).long(),
        )

    def recur(
        self,
        q: Float[Tensor, "b h 1 e"],
        k: Float[Tensor, "b h 1 e"],
        v: Float[Tensor, "b h 1 e"],
        state: State,
    ) -> tuple[Float[Tensor, "b h 1 e"], State]:
        """See `ProjectedAttention.recur`; the oldest token makes room for the latest."""
        keys, values, count = state
        keys, values = (
            torch.cat([old[:, :, 1:], new], dim=2) for old, new in ((keys, k), (values, v))
        )
        sight = keys.shape[2]
        count = (count + 1).clamp_max(sight)
        seen = torch.arange(sight, device=q.device) >= sight - count[:, None]
        heads = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen[:, None, None])
        return heads, (keys, values, count)
