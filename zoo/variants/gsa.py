"""Gated slot attention (GSA): softmax over a fixed number of gated slots.

Zhang, Yang, Zhu, Zhang, Cui, Wang, Wang, Shi, Wang, Bi, Zhou, Fu, "Gated Slot Attention for
Efficient Linear-Time Sequence Modeling", NeurIPS 2024, arXiv 2409.07146. With, per head, `slots`
slots and

    q, k, v = silu(W x)        alpha_i = sigmoid(W_f x_i)^(1 / temperature)        s_i = 1 - alpha_i
    K_i = diag(alpha_i) K_(i-1) + s_i k_i^T         V_i = diag(alpha_i) V_(i-1) + s_i v_i^T
    y_i = V_i^T softmax(K_i q_i)                    out = W_o RMSNorm(silu(y))

K and V have a row for each slot, the softmax runs over slots, without a scale of q, and RMSNorm
over the channels of all heads. Both sums are gated linear attention (`zoo.kernels.slots`). alpha
starts near 0.917, a half-life of 8 tokens. Time O(n (chunk + e) slots), state 2 `slots` e per head.

The scale, activations, norm and temperature are those of the library of its authors (fla), which
has 64 slots.

Deviation: behind the convolution of `Size.short_conv` is one SiLU, not another.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import (
    Attended,
    Attention,
    Context,
    Count,
    Mask,
    Positions,
    Queries,
    State,
    Tokens,
)
from zoo.delta_attention import EPS
from zoo.kernels import slots as kernel
from zoo.kernels.precision import full_precision, rms_norm
from zoo.kernels.real_tokens import count_after, positions_after, token_ranks, zero_padding
from zoo.projection import Projected, ShortConvolution
from zoo.recurrent import in_heads
from zoo.size import Size
from zoo.spans import in_spans
from zoo.traits import Traits
from zoo.variants import variants


@variants.register("gsa")
class GatedSlotAttention(Attention):
    """Softmax attention to slots, which forget and are written by the same gate.

    Args:
        slots: of each head.
        temperature: the root taken of the gates; a larger one makes the decay slower.
    """

    version = "1.0"
    family = "decay"
    traits = Traits.causal_only(linear=True, stochastic=False, recurrent=True)
    spans = 4

    def __init__(
        self, size: Size, *, slots: Count = 64,
        temperature: Annotated[float, Field(gt=0)] = 8.0,
    ) -> None:  # fmt: skip
        super().__init__(size)
        self.temperature, gates = temperature, size.heads * slots
        self.slots = slots
        self.query_key_value = nn.Linear(size.dim, 3 * size.dim + gates, bias=False)
        self.short_conv = ShortConvolution(size, 3 * size.dim + gates, plain=gates)
        self.norm = nn.RMSNorm(size.dim, eps=EPS)
        self.out = nn.Linear(size.dim, size.dim, bias=False)

    @in_spans
    def forward(self, x: Tokens, context: Context | None = None, mask: Mask = None) -> Attended:
        positions = None if mask is None else token_ranks(mask)
        state = self.start(x.shape[0])
        heads, *_ = self._heads(
            self.short_conv(self.query_key_value(x), mask), positions, mask, state
        )
        return Attended(self._merge(x, heads))

    def start(self, batch: int) -> State:
        # Keys and values of the slots, and the number of tokens.
        shape = self.size.heads, self.slots, self.size.head_dim
        keys, values = (self.zero_state(batch, *shape) for _ in range(2))
        past = self.zero_past(batch, self.short_conv)
        return keys, values, self.zero_state(batch).long(), *past

    def extend(self, x: Tokens, real: Mask, state: State) -> tuple[Tokens, State]:
        count, n = state[2], x.shape[1]
        projected, past = self.short_conv.extend(self.query_key_value(x), state[3:], real)
        heads, *after = self._heads(projected, positions_after(count, n), real, state)
        return self._merge(x, heads), (*after, count_after(count, n, real), *past)

    def _heads(
        self, projected: Projected, positions: Positions | None, mask: Mask, state: State
    ) -> tuple[Queries, Tensor, Tensor]:
        dim = self.size.dim
        with full_precision(projected) as (u,):
            joined, logits = u.split([3 * dim, u.shape[-1] - 3 * dim], dim=-1)
            joined = joined if self.size.short_conv else F.silu(joined)
            q, k, v = (in_heads(part, self.size.heads) for part in joined.chunk(3, dim=-1))
            q, k = (self.apply_rotary(part, positions) for part in (q, k))
            log_decay = F.logsigmoid(in_heads(logits, self.size.heads)) / self.temperature
            # A padded token neither decays a slot nor is written.
            log_decay = zero_padding(log_decay, mask)
            return kernel.extend(q, k, v, -torch.expm1(log_decay), log_decay, *state[:2])

    def _merge(self, x: Tokens, heads: Queries) -> Tokens:
        return self.out(rms_norm(self.norm, F.silu(heads.transpose(1, 2).flatten(-2))))
