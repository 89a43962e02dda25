"""DeltaNet: linear attention that replaces the value stored for a key.

Schlag, Irie, Schmidhuber, "Linear Transformers Are Secretly Fast Weight Programmers", 2021, arXiv
2102.11174, section 4; Yang et al., "Parallelizing Linear Transformers with the Delta Rule over
Sequence Length", 2024, arXiv 2406.06484, for the layer and the form in chunks:

    beta_i = sigmoid(W_b x_i), one for each head
    S_i = S_(i-1) + beta_i k_i (v_i - S_(i-1)^T k_i)^T         y_i = S_i^T q_i / sqrt(e)

What S holds for k_i is replaced by v_i in the proportion beta_i. With `negative`, beta is doubled,
in (0, 2): the factor 1 - beta_i of S along k_i may be negative, so that one layer follows a parity
(Grazzi et al., 2024, arXiv 2411.12537). With `steps` > 1 each token does as many steps, each with
another k, v and beta, and reads after the last, as in `delta-product`, but without its forget gate.
The norm of k is part of the mechanism: S grows
without bound for |k|^2 > 2 / beta. Time O(n (chunk + e) e steps), state e^2 per head. Projections,
norms and deviations: `zoo.delta_attention`.
"""

from typing import Any

import torch
from torch import Tensor, nn

from zoo.contract import Count, Identity, Size, Tokens
from zoo.delta_attention import DeltaAttention, OutputGate, sigmoid_gate
from zoo.variants import variants


def without_second_key(layer: "Delta", other: Any) -> None:
    size = layer.size
    layer.query_key_value.weight.zero_()[: 3 * size.dim] = other.query_key_value.weight
    layer.beta.weight[: size.heads] = other.beta.weight


@variants.register("delta")
class Delta(DeltaAttention):
    """Linear attention that erases what it stored for a key before it writes."""

    version = "1.0"
    identities = (
        Identity(
            other="delta", where="steps = 2, second key 0", options={"steps": 2},
            prepare=without_second_key,
        ),
    )  # fmt: skip

    def __init__(
        self, size: Size, *, negative: bool = False, steps: Count = 1, gate: OutputGate = "none"
    ) -> None:
        """`steps`: steps of the delta rule for each token."""
        super().__init__(size, steps=steps)
        self.negative = negative
        self.beta = nn.Linear(size.dim, steps * size.heads, bias=False)
        self.make_output(gate)

    def gates(self, x: Tokens) -> tuple[Tensor, Tensor, Tensor]:
        logits = self.beta(x).unflatten(-1, (self.steps, -1)).flatten(1, 2)
        beta = sigmoid_gate(logits, self.size.heads, doubled=self.negative)
        return torch.zeros_like(beta[:1, :1, :1]), beta, beta
