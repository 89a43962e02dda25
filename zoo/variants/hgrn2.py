"""HGRN2: a gated recurrence whose keys are what its forget gates forget.

Qin et al., "HGRN2: Gated Linear RNNs with State Expansion", 2024, arXiv 2404.07904, section 3:

    alpha_i = l + (1 - l) sigmoid(W_f x_i), in (0, 1)^e for each head
    S_i = diag(alpha_i) S_(i-1) + (1 - alpha_i) v_i^T         y_i = S_i^T silu(W_q x_i) / sqrt(e)
    out = W_o RMSNorm(y), over the channels of all heads

It is gated linear attention with 1 - alpha_i for k_i. Time O(n (chunk + e) e), state e^2 per head.

The scale e^(-1/2) and the short convolution, which has no activation and also reads the logits
W_f x, are from the library of its authors (fla).

Deviations: l is an option, the same for all layers: a layer does not know its depth. The paper
learns it, 0 in the first layer and larger in later ones. The form that is not causal is as in
`gated-linear`; the paper has the causal form alone.
"""

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from zoo.contract import Positions, Size, Tokens, Traits
from zoo.delta_attention import EPS
from zoo.kernels.precision import full_precision, rms_norm
from zoo.projection import Projected
from zoo.recurrent import Heads, Inputs, RecurrentAttention, in_heads
from zoo.variants import variants


@variants.register("hgrn2")
class Hgrn2(RecurrentAttention):
    """Linear attention with a forget gate for each channel, and a write gate that is its rest."""

    version = "1.1"
    family = "decay"
    traits = Traits(causal=True, cross=False, linear=True, stochastic=False, recurrent=True)
    spans = 8 / 5

    def __init__(
        self, size: Size, *, lower_bound: Annotated[float, Field(ge=0, lt=1)] = 0.0
    ) -> None:
        """`lower_bound`: the least decay l; the paper has larger ones in later layers."""
        super().__init__(size, 3 * size.dim, bias=False, activation=False)
        self.lower_bound = lower_bound
        self.norm = nn.RMSNorm(size.dim, eps=EPS)
        self.out = nn.Linear(size.dim, size.dim, bias=False)

    def inputs(self, x: Tokens, projected: Projected, positions: Positions | None) -> Inputs:
        with full_precision(projected) as (u,):
            q, v, logits = (in_heads(part, self.size.heads) for part in u.chunk(3, dim=-1))
            q, log_decay = F.silu(q) * q.shape[-1] ** -0.5, F.logsigmoid(logits)
            if self.lower_bound:
                rest = math.log1p(-self.lower_bound) + log_decay
                log_decay = torch.logaddexp(rest.new_tensor(self.lower_bound).log(), rest)
            k = self.apply_rotary(-torch.expm1(log_decay), positions)
            return Inputs(self.apply_rotary(q, positions), k, v, log_decay)

    def merge(self, x: Tokens, heads: Heads) -> Tokens:
        return self.out(rms_norm(self.norm, heads.transpose(1, 2).flatten(-2)))
