"""Gated linear attention: a recurrence with data-dependent decay by channel.

Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", 2023, arXiv
2312.06635, section 4. With alpha_i in (0, 1)^e for each token and head,

    alpha_i = sigmoid(W_2 W_1 x_i + b)^(1 / temperature)
    S_i = diag(alpha_i) S_(i-1) + k_i v_i^T         y_i = q_i^T S_i / sqrt(e)
    out_i = W_o (swish(W_r x_i) * Norm_h(y_i))

The recurrence is the one of `zoo.kernels.delta` without an erase gate. Time O(n (chunk + e) e),
memory O(n (e log chunk + chunk + e^2 / chunk)) per head.

Deviations: the form that is not causal adds to the sum over j <= i the sum over j > i, by the same
recurrence on the reversed sequence, with the same gates: alpha_i ... alpha_(j-1); the paper has the
causal form alone. Keys are as wide as values, where the paper halves them. Norm_h is a group norm,
one group per head.
"""

from typing import Annotated

from pydantic import AfterValidator, Field
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Count, Positions, Size, Tokens, Traits
from zoo.gated import GatedAttention
from zoo.kernels.precision import full_precision
from zoo.projection import Projected
from zoo.recurrent import Inputs, in_heads
from zoo.variants import variants


def _power_of_two(chunk: int) -> int:
    if chunk < 1 or chunk & (chunk - 1):
        raise ValueError("must be a power of two; try 64")
    return chunk


@variants.register("gated-linear")
class GatedLinear(GatedAttention):
    """Linear attention with a forget gate for each token and key channel.

    Args:
        gate_rank: rank of the map from a token to its forget gates.
        temperature: the root taken of the gates; a larger one makes the decay slower.
        chunk: tokens of a chunk, a power of two; the result does not depend on it.
    """

    version = "2.0"
    traits = Traits(causal=True, cross=False, linear=True, stochastic=False, recurrent=True)
    family = "decay"

    def __init__(
        self,
        size: Size,
        *,
        gate_rank: Count = 16,
        temperature: Annotated[float, Field(gt=0)] = 16.0,
        chunk: Annotated[int, AfterValidator(_power_of_two)] = 64,
    ) -> None:
        super().__init__(size)
        self.temperature, self.chunk = temperature, chunk
        self.forget = nn.Sequential(
            nn.Linear(size.dim, gate_rank, bias=False), nn.Linear(gate_rank, size.dim)
        )
        self.make_output()

    def inputs(self, x: Tokens, projected: Projected, positions: Positions | None) -> Inputs:
        return gated_inputs(self, projected, self.forget(x), self.temperature, positions)


def gated_inputs(
    layer: GatedAttention, projected: Projected, logits: Tensor, temperature: float,
    positions: Positions | None, *, unit: bool = False,
) -> Inputs:  # fmt: skip
    # The decay is from the logits of a gate of each head, or channel.
    heads = layer.size.heads
    # fp32 at least: sums over many tokens, and exponentials of sums.
    with full_precision(projected, logits) as (u, logits):
        # The gradients of `unbind` are joined in the order of `u`, without another copy.
        q, k, v = (x.transpose(1, 2) for x in u.unflatten(-1, (3, heads, -1)).unbind(2))
        if unit:
            # Far shorter vectors than those of a layer would have gradients of any size.
            q, k = (F.normalize(x, dim=-1, eps=1e-3) for x in (q, k))
        q = layer.apply_rotary(q * q.shape[-1] ** -0.5, positions)
        log_decay = F.logsigmoid(in_heads(logits, heads)) / temperature
        return Inputs(q, layer.apply_rotary(k, positions), v, log_decay)
