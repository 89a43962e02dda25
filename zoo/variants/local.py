"""Local attention: softmax over a sliding window around the query.

The local attention of Child et al., "Generating Long Sequences with Sparse Transformers", 2019,
arXiv 1904.10509, section 4.2, and of Beltagy et al., 2020, arXiv 2004.05150, section 3.1. With
window w, and j over real tokens,

    out_i = sum_{j in S_i} softmax_j(q_i . k_j / sqrt(e)) v_j
    S_i = {j : |i - j| <= w}            2w + 1 tokens
    S_i = {j : i - w <= j <= i}         w + 1 tokens, causal

Time O(n w e) per head and memory O(n w) per sample: `zoo.kernels.window`.

Deviations: positions are ranks among the real tokens of a sample, so padding between two tokens
does not change their distance. A sample without real tokens returns zero.
"""

from functools import partial

import torch
from torch.nn import functional as F

from zoo.contract import Count, Keys, Mask, OneToken, Queries, Size, State, Traits
from zoo.kernels.key_value_cache import attend_after
from zoo.kernels.real_tokens import count_after, last_tokens, with_real_tokens_first
from zoo.kernels.window import windowed_attention
from zoo.projected import ProjectedAttention
from zoo.variants import variants
from zoo.variants.softmax import FUSED


@variants.register("local")
class Local(ProjectedAttention):
    """Softmax attention to the `window` tokens before a token, itself, and as many after it."""

    version = "1.0"
    traits = Traits(causal=True, cross=False, linear=True, stochastic=False, recurrent=True)
    family = "sparse"
    gpu_kernels = FUSED
    drops_weights = True

    def __init__(self, size: Size, *, window: Count = 64) -> None:
        """`window`: w, the tokens of the window before the query, and after it unless causal.

        From n - 1 on, the result is softmax attention.
        """
        super().__init__(size)
        self.window = window

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask | None) -> Queries:
        options = {"causal": self.size.causal, "dropout": self.dropout}
        attend = partial(windowed_attention, window=self.window, **options)
        return with_real_tokens_first(attend, mask, q, k, v)

    def head_flops(self, n: int) -> int:
        # Scores and sums of the pairs within the window.
        window = min(self.window, n - 1)
        before = n * window - window * (window + 1) // 2
        pairs = n + before * (1 if self.size.causal else 2)
        return 2 * pairs * 2 * self.size.head_dim

    def begin(self, batch: int) -> State:
        # Keys and values of the window, and their number.
        window = min(self.window + 1, self.size.max_len)
        shape = batch, self.size.heads, window, self.size.head_dim
        return self.zero_state(*shape), self.zero_state(*shape), self.zero_state(batch).long()

    def recur(self, q: OneToken, k: OneToken, v: OneToken, state: State) -> tuple[OneToken, State]:
        # The newest token comes last.
        keys, values, count = state
        keys, values = (
            torch.cat([old[:, :, 1:], new], dim=2) for old, new in ((keys, k), (values, v))
        )
        window = keys.shape[2]
        count = (count + 1).clamp_max(window)
        filled = torch.arange(window, device=q.device) >= window - count[:, None]
        heads = F.scaled_dot_product_attention(q, keys, values, attn_mask=filled[:, None, None])
        return heads, (keys, values, count)

    def attend_after(
        self, q: Queries, k: Keys, v: Keys, real: Mask | None, state: State
    ) -> tuple[Queries, State]:
        keys, values, count = state
        window = keys.shape[2]
        seen = torch.arange(window, device=q.device) >= window - count[:, None]
        heads = attend_after(self.attend, q, k, v, real, keys, values, seen)
        keys, values = (
            last_tokens(torch.cat(pair, dim=2), window, real) for pair in ((keys, k), (values, v))
        )
        return heads, (keys, values, count_after(count, k.shape[2], real).clamp_max(window))
