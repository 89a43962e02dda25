"""DeltaProduct: several steps of the delta rule for each token, after one decay.

Siems et al., "DeltaProduct: Improving State-Tracking in Linear RNNs via Householder Products",
2025, arXiv 2502.10297, as the layer of fla, with m steps for each token:

    S_(i,0) = alpha_i S_(i-1,m)                              y_i = S_(i,m)^T q_i / sqrt(e)
    S_(i,j) = S_(i,j-1) + beta_(i,j) k_(i,j) (v_(i,j) - S_(i,j-1)^T k_(i,j))^T

with alpha and the gate of the output as in `gated-delta`, and beta in (0, 2), or in (0, 1) without
`negative`. Two reflections, where beta = 2, are a rotation. Time O(n (chunk + e) e m), state e^2
per head. Projections, norms and deviations: `zoo.delta_attention`; the published layer has values
twice as wide as keys.
"""

import math
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Count, Identity, Size, Tokens
from zoo.delta_attention import Decay, OutputGate
from zoo.spans import SPANS
from zoo.variants import variants
from zoo.variants.delta import Delta, without_second_key


def _as_gated(layer: Any, other: Any) -> None:
    without_second_key(layer, other)
    layer.decay.load_state_dict(other.decay.state_dict())


@variants.register("delta-product")
class DeltaProduct(Delta):
    """The delta rule with several keys for each token, and a forget gate.

    Args:
        steps: steps of the delta rule for each token, m.
        forget: whether the state decays before the first step of a token.
    """

    version = "1.0"
    identities = (
        Identity(
            other="delta", where="decay 1", options={"gate": "none", "negative": False},
            other_options={"steps": 2}, exact=True,
            prepare=lambda layer, other: layer.decay.log_rate.fill_(-math.inf),
        ),
        Identity(
            other="gated-delta", where="second key 0", options={"negative": False},
            prepare=_as_gated,
        ),
    )  # fmt: skip
    spans = SPANS

    def __init__(
        self, size: Size, *, steps: Count = 2, negative: bool = True, forget: bool = True,
        gate: OutputGate = "silu",
    ) -> None:  # fmt: skip
        super().__init__(size, negative=negative, steps=steps, gate=gate)
        maps = nn.Linear(size.dim, size.heads, bias=False)
        self.decay = Decay(maps, size.heads, 1, lowest=0.01) if forget else None

    def gates(self, x: Tokens) -> tuple[Tensor, Tensor, Tensor]:
        # The state decays in the first step of each token.
        log_decay, erase, write = super().gates(x)
        if self.decay is not None:
            first = self.decay(x)[0][:, :, :, None]
            log_decay = F.pad(first, (0, 0, 0, self.steps - 1)).flatten(2, 3)
        return log_decay, erase, write
