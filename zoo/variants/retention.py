"""RetNet's retention: linear attention with fixed exponential decay by head.

Sun et al., "Retentive Network: A Successor to Transformer for Large Language Models", 2023, arXiv
2307.08621, section 2. With gamma_a = 1 - 2^(-5 - a) for head a, counted from 0, and R_i the
rotation of channel pairs by the angles i theta_c, theta_c = 10000^(-2c / e),

    S_i = gamma S_(i-1) + (R_i k_i) v_i^T         y_i = (R_i q_i)^T S_i / sqrt(e)
    y_i = sum_{j <= i} gamma^(i - j) (R_i q_i) . (R_j k_j) / sqrt(e) v_j
    out = W_o (swish(x W_g) * GroupNorm_h(y))

The recurrence is the one of `zoo.kernels.delta` with a constant decay. Time O(n (chunk + e) e) and
memory O(n (chunk + e^2 / chunk)) per head.

Deviations: the form that is not causal decays by distance, gamma^|i - j|, over all j; the paper has
the causal form alone. Positions are ranks among the real tokens of a sample. The paper's
normalisations of q k^T and of its row sums scale each y_i by a number, which cancels in the group
norm, up to its epsilon; they are left out. Rotary positions are part of the mechanism:
`Size.rotary` adds none. Projections have a bias. Values are as wide as keys, where the paper
doubles them, so that all variants have heads of one width.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.contract import Count, Positions, Size, Tokens, Traits
from zoo.gated import GatedAttention
from zoo.kernels.precision import full_precision
from zoo.kernels.rotary import apply_rotary
from zoo.projection import Projected
from zoo.recurrent import Inputs, in_heads
from zoo.registry import UserError
from zoo.variants import variants


@variants.register("retention")
class Retention(GatedAttention):
    """Linear attention with rotary positions, and an exponential decay for each head."""

    version = "1.1"
    traits = Traits(causal=True, cross=False, linear=True, stochastic=False, recurrent=True)
    family = "decay"
    has_bias = True

    def __init__(self, size: Size, *, chunk: Count = 128) -> None:
        """`chunk`: tokens of a chunk; the result does not depend on it."""
        super().__init__(size)
        if size.head_dim % 2:
            raise UserError(f"retention rotates pairs of channels, and dim={size.dim} over "
                            f"heads={size.heads} leaves {size.head_dim}; choose a dim that is a "
                            "multiple of twice the heads")  # fmt: skip
        self.chunk = chunk
        self.make_output()

    def inputs(self, x: Tokens, projected: Projected, positions: Positions | None) -> Inputs:
        # fp32 at least: the state is a sum over many tokens.
        with full_precision(projected) as (u,):
            # One rotation for queries and keys. Not slices, whose gradients are as large as `u`.
            heads, (both, v) = self.size.heads, u.split([2 * self.size.dim, self.size.dim], dim=-1)
            q, k = apply_rotary(in_heads(both, 2 * heads), positions).chunk(2, dim=1)
            gamma = log_gamma(heads).to(q)[None, :, None, None]
            return Inputs(q * q.shape[-1] ** -0.5, k, in_heads(v, heads), gamma)


def log_gamma(heads: int) -> Float[Tensor, " h"]:
    return torch.log1p(-torch.exp2(-5 - torch.arange(heads, dtype=torch.float64)))
