"""State space duality: linear attention with a data-dependent decay for each head.

Dao, Gu, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured
State Space Duality", 2024, arXiv 2405.21060, section 3, with the projections of `gated-linear`:

    alpha_i = sigmoid(W_a x_i + b)^(1 / temperature), one for each head
    S_i = alpha_i S_(i-1) + k_i v_i^T         y_i = S_i^T q_i / sqrt(e)
    out = W_o (swish(W_g x) * Norm_h(y))

With `unit`, q_i and k_i are divided by their lengths. It is `gated-linear` with one decay for all
channels of a head. The published layer, which couples the decay to what is written, is `mamba2`.
Time O(n (chunk + e) e), state e^2 per head.

Deviations: the form that is not causal is as in `gated-linear`; the paper has the causal form
alone. Norm_h is a group norm, one group per head.
"""

from typing import Annotated, Any

from pydantic import Field
from torch import nn

from zoo.contract import Identity, Positions, Size, Tokens, Traits
from zoo.delta_attention import spread_heads
from zoo.gated import GatedAttention
from zoo.projection import Projected
from zoo.recurrent import Inputs
from zoo.variants import variants
from zoo.variants.gated_linear import gated_inputs


def _as_channels(layer: "Ssd", other: Any) -> None:
    spread_heads(layer.decay.weight, other.forget)
    _, up = other.forget
    up.bias.copy_(layer.decay.bias.repeat_interleave(layer.size.head_dim))


@variants.register("ssd")
class Ssd(GatedAttention):
    """Linear attention with a forget gate for each token and head.

    Args:
        size: see `Size`.
        temperature: the root taken of the gates; a larger one makes the decay slower.
        unit: whether queries and keys have length 1, as "Mamba2" of arXiv 2506.05233.
    """

    version = "2.0"
    family = "decay"
    traits = Traits(causal=True, cross=False, linear=True, stochastic=False, recurrent=True)
    identities = (
        Identity(other="gated-linear", where="equal channels there", prepare=_as_channels),
    )
    spans = 8 / 5

    def __init__(
        self, size: Size, *, temperature: Annotated[float, Field(gt=0)] = 16.0, unit: bool = False
    ) -> None:
        super().__init__(size)
        self.temperature, self.unit = temperature, unit
        self.decay = nn.Linear(size.dim, size.heads)
        self.make_output()

    def inputs(self, x: Tokens, projected: Projected, positions: Positions | None) -> Inputs:
        return gated_inputs(
            self, projected, self.decay(x), self.temperature, positions, unit=self.unit
        )
