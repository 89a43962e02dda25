"""Gated DeltaNet: the delta rule with a data-dependent decay for each head.

Yang, Kautz, Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2024, arXiv
2412.06464, section 3:

    alpha_i = exp(-exp(a_h) softplus(W_a x_i + c))         beta_i = sigmoid(W_b x_i)
    S_i = alpha_i (I - beta_i k_i k_i^T) S_(i-1) + beta_i k_i v_i^T     y_i = S_i^T q_i / sqrt(e)

alpha and beta are numbers of each head; exp(a_h) starts uniform in (0.01, 16), softplus(c)
log-uniform in (0.001, 0.1): half of the heads halve their state in 11 tokens or more. `negative`
doubles beta, as in `delta`. Time O(n (chunk + e) e), state e^2 per head. Projections, norms and
deviations: `zoo.delta_attention`; the published layer has values twice as wide as keys.
"""

import math

from torch import Tensor, nn

from zoo.contract import Identity, Size, Tokens
from zoo.delta_attention import Decay, DeltaAttention, OutputGate, sigmoid_gate
from zoo.variants import variants


@variants.register("gated-delta")
class GatedDelta(DeltaAttention):
    """The delta rule, and a decay of the state for each token and head."""

    version = "1.0"
    identities = (
        Identity(
            other="delta", where="decay 1", options={"gate": "none"}, exact=True,
            prepare=lambda layer, other: layer.decay.log_rate.fill_(-math.inf),
        ),
    )  # fmt: skip

    def __init__(self, size: Size, *, negative: bool = False, gate: OutputGate = "silu") -> None:
        super().__init__(size)
        self.negative = negative
        self.beta = nn.Linear(size.dim, size.heads, bias=False)
        self.decay = self.make_decay(size)
        self.make_output(gate)

    def make_decay(self, size: Size) -> Decay:
        # From 0.01: a rate of 0 would stay 0.
        return Decay(nn.Linear(size.dim, size.heads, bias=False), size.heads, 1, lowest=0.01)

    def gates(self, x: Tokens) -> tuple[Tensor, Tensor, Tensor]:
        beta = sigmoid_gate(self.beta(x), self.size.heads, doubled=self.negative)
        return self.decay(x)[0], beta, beta
