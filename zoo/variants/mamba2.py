"""Mamba-2: a state space whose time step scales what it forgets and writes.

Dao, Gu, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured
State Space Duality", 2024, arXiv 2405.21060, section 7. With z, u of width 2 d, B, C in R^state
shared by all heads, a step t for each head, linear in x, and SiLU behind the convolution of u, B
and C,

    t_i = softplus(W_t x_i + c)         alpha_i = exp(-exp(a_h) t_i)
    S_i = alpha_i S_(i-1) + t_i B_i u_i^T         y_i = S_i^T C_i + D_h u_i
    out = W_o RMSNorm(y * silu(z))

exp(a_h) starts uniform in (1, 16), softplus(c) log-uniform in (0.001, 0.1), D_h at 1. Time
O(n (chunk + state) d), state `state` * 2 d per layer: for equal sizes lower `state`.

Deviations: the convolution is `Size.short_conv`, without a bias; the paper has 4 taps.
"""

import torch
from torch import nn
from torch.nn import functional as F

from zoo.contract import Count, Positions, Size, Tokens, Traits
from zoo.delta_attention import EPS, Decay
from zoo.kernels.precision import full_precision, rms_norm
from zoo.projection import Projected
from zoo.recurrent import Heads, Inputs, RecurrentAttention, in_heads
from zoo.variants import variants


@variants.register("mamba2")
class Mamba2(RecurrentAttention):
    """Linear attention with a time step for each token and head, and keys shared by the heads.

    Args:
        state: channels of a key, which all heads share.
        expand: channels of the values of all heads, over the channels of a token.
    """

    version = "1.1"
    family = "decay"
    traits = Traits.causal_only(linear=True, stochastic=False, recurrent=True)

    def __init__(self, size: Size, *, state: Count = 128, expand: Count = 2) -> None:
        inner = expand * size.dim
        super().__init__(size, inner + 2 * state, bias=False)
        self.widths = inner, state, state
        self.decay = Decay(nn.Linear(size.dim, size.heads, bias=False), size.heads, 1, lowest=1.0)
        self.skip = nn.Parameter(torch.ones(size.heads))
        self.gate = nn.Linear(size.dim, inner, bias=False)
        self.norm = nn.RMSNorm(inner, eps=EPS)
        self.out = nn.Linear(inner, size.dim, bias=False)

    def state_shape(self) -> tuple[int, int]:
        return self.widths[1], self.widths[0] // self.size.heads

    def inputs(self, x: Tokens, projected: Projected, positions: Positions | None) -> Inputs:
        log_decay, step = self.decay(x)
        with full_precision(projected) as (projected,):
            projected = projected if self.size.short_conv else F.silu(projected)
            u, k, q = projected.split(self.widths, dim=-1)
            q, k = (self.apply_rotary(part[:, None], positions) for part in (q, k))
            q, k = (part.expand(-1, self.size.heads, -1, -1) for part in (q, k))
            return Inputs(q, k, in_heads(u, self.size.heads), log_decay, None, step)

    def read(self, heads: Heads, inputs: Inputs) -> Heads:
        return heads + self.skip[:, None, None] * inputs.v

    def merge(self, x: Tokens, heads: Heads) -> Tokens:
        # The gate in fp32 at least, as the heads, whose sums over many tokens overflow fp16.
        gate = self.gate(x).to(heads.dtype)
        return self.out(rms_norm(self.norm, heads.transpose(1, 2).flatten(-2) * F.silu(gate)))
