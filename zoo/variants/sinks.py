"""Window attention with sinks: a few keys that every query attends to.

Xiao et al., "Efficient Streaming Language Models with Attention Sinks", ICLR 2024, arXiv
2309.17453: the first s tokens of a sequence are visible to all later tokens. OpenAI, "gpt-oss-120b
and gpt-oss-20b Model Card", 2025, arXiv 2508.10925: a learned logit c per head takes part in every
softmax, without a value. With window w, and j over real tokens,

    a_ij = exp(q_i . k_j / sqrt(e))
    out_i = sum_{j in S_i} a_ij v_j / (exp(c) + sum_{j in S_i} a_ij)
    S_i = {j : |i - j| <= w or j < s}       only j <= i in the causal form

The logit comes from a token before the first token, with the key [0, c] for a query [q_i, 1], and
the value 0. Time O(n (w + s) e) and memory O(n (w + s)): `zoo.kernels.window`.

Deviations: the form that is not causal; both papers have the causal form alone. Rotary positions
are ranks among the real tokens of the sequence, where StreamingLLM counts those in its cache. A
window has w tokens beside the query, as in `local`, and in the papers w with it. A logit starts at
0, where gpt-oss draws it. A query without any key returns zero.
"""

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Count, Keys, Mask, Natural, OneToken, Queries, Size, State
from zoo.kernels.key_value_cache import attend_after
from zoo.kernels.real_tokens import count_after, gather_tokens, last_tokens, with_real_tokens_first
from zoo.kernels.window import windowed_attention
from zoo.projected import ProjectedAttention
from zoo.traits import Identity, Traits
from zoo.variants import variants
from zoo.variants.softmax import FUSED


@variants.register("sinks")
class Sinks(ProjectedAttention):
    """Softmax attention to a window, to the first tokens, and optionally to a learned logit.

    Args:
        window: w, the tokens of the window before the query, and after it unless causal.
        tokens: s, the first tokens, which every query attends to; 0 for none.
        learned: whether a learned logit per head takes part in every softmax.
    """

    version = "1.0"
    family = "sparse"
    gpu_kernels = FUSED
    traits = Traits(causal=True, cross=False, linear=True, stochastic=False, recurrent=True)
    identities = (
        Identity(other="softmax", where="window >= n", options={"window": 1000}),
        Identity(other="softmax", where="window >= n, logit of -1e4",
                 options={"window": 1000, "learned": True},
                 prepare=lambda layer, other: layer.sink.fill_(-1e4)),
    )  # fmt: skip
    drops_weights = True

    def __init__(
        self, size: Size, *, window: Count = 64, tokens: Natural = 4, learned: bool = False
    ) -> None:
        super().__init__(size)
        self.window, self.tokens = window, tokens
        self.sink = nn.Parameter(torch.zeros(size.heads)) if learned else None

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask) -> Queries:
        return with_real_tokens_first(self._attend, mask, q, k, v)

    def _attend(self, q: Queries, k: Keys, v: Keys, count: Int[Tensor, " #b"]) -> Queries:
        n = q.shape[2]
        attend = partial(
            windowed_attention, window=self.window, causal=self.size.causal, dropout=self.dropout
        )
        # At least s tokens; an exported graph has no special case for fewer.
        spare = self.tokens if torch.compiler.is_exporting() else max(self.tokens - n, 0)
        q, k, v = (F.pad(part, (0, 0, 0, spare)) if spare else part for part in (q, k, v))
        if self.sink is None:
            return attend(q, k, v, count, global_tokens=self.tokens)[:, :, :n]
        # The token of the logit comes first, and is global.
        q, k, v = (F.pad(part, (0, 0, 1, 0)) for part in with_channel(q, k, v))
        k = torch.cat([key_of(self.sink, q), k[:, :, 1:]], dim=2)
        return attend(q, k, v, count + 1, global_tokens=self.tokens + 1)[:, :, 1 : n + 1, :-1]

    def head_flops(self, n: int) -> int:
        window, first = min(self.window, n - 1), min(self.tokens, n)
        before = n * window - window * (window + 1) // 2
        pairs = n + before * (1 if self.size.causal else 2)
        # Of the first tokens, those out of the window.
        beyond = max(n - window - 1, 0)
        far = [max(beyond - token, 0) for token in range(first)]
        return 2 * (pairs + sum(far)) * 2 * self.size.head_dim

    def begin(self, batch: int) -> State:
        # First keys and values, the window, a count.
        window = min(self.window + 1, self.size.max_len)
        shapes = [(batch, self.size.heads, m, self.size.head_dim) for m in (self.tokens, window)]
        first, last = (self.zero_state(*shape) for shape in shapes)
        return first, first, last, last, self.zero_state(batch).long()

    def recur(self, q: OneToken, k: OneToken, v: OneToken, state: State) -> tuple[OneToken, State]:
        # The newest token comes last.
        *old, count = state
        token = torch.arange(self.tokens, device=q.device)
        is_next = (token == count[:, None])[:, None, :, None]
        first = [torch.where(is_next, new, part) for part, new in zip(old[:2], (k, v), strict=True)]
        last = [
            torch.cat([part[:, :, 1:], new], 2) for part, new in zip(old[2:], (k, v), strict=True)
        ]
        window = last[0].shape[2]
        position = count[:, None] + torch.arange(1 - window, 1, device=q.device)
        # A first token within the window counts once.
        seen = torch.cat([token <= count[:, None], position >= self.tokens], dim=1)
        keys, values = (torch.cat(pair, dim=2) for pair in zip(first, last, strict=True))
        if self.sink is not None:
            q, keys, values = with_channel(q, keys, values)
            keys, values = torch.cat([key_of(self.sink, q), keys], 2), F.pad(values, (0, 0, 1, 0))
            seen = F.pad(seen, (1, 0), value=True)
        heads = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen[:, None, None])
        return heads[..., : self.size.head_dim], (*first, *last, count + 1)

    def attend_after(
        self, q: Queries, k: Keys, v: Keys, real: Mask, state: State
    ) -> tuple[Queries, State]:
        *old, count = state
        s, window = self.tokens, old[2].shape[2]
        token, position = (torch.arange(m, device=q.device) for m in (s, window))
        seen = [token < count[:, None], count[:, None] - window + position >= s]
        keys, values = (torch.cat(old[i::2], dim=2) for i in (0, 1))
        heads = attend_after(self.attend, q, k, v, real, keys, values, torch.cat(seen, dim=1))
        after = [torch.cat([part, new], 2) for part, new in zip(old, (k, v, k, v), strict=True)]
        # The next tokens follow those that there are.
        index = torch.where(seen[0], token, s + token - count[:, None])
        index = index.clamp_max(s + k.shape[2] - 1)
        first = [gather_tokens(part, index) for part in after[:2]]
        last = [last_tokens(part, window, real) for part in after[2:]]
        return heads, (*first, *last, count_after(count, k.shape[2], real))


def with_channel(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # One channel more: 1 in queries, 0 elsewhere; logits are the same.
    width = q.shape[-1]
    # Attention divides by the root of the new width.
    q = F.pad(q * ((width + 1) / width) ** 0.5, (0, 1), value=1.0)
    return q, F.pad(k, (0, 1)), F.pad(v, (0, 1))


def key_of(logit: Float[Tensor, " h"], q: Float[Tensor, "b h n w"]) -> Float[Tensor, "b h 1 w"]:
    # [0, c], whose logit with any query [q_i, 1] of width w is c.
    width = q.shape[-1]
    key = F.pad(logit[:, None] * width**0.5, (width - 1, 0))[None, :, None]
    return key.to(q.dtype).expand(q.shape[0], -1, -1, -1)
