"""Gated DeltaNet-2: the delta rule with decay, erase and write gates by channel.

Hatamizadeh, Choi, Kautz, "Gated DeltaNet-2: Decoupling Erase and Write in Linear Attention", 2026,
arXiv 2605.22791:

    b_i = sigmoid(W_b x_i), in (0, 1)^e for each head         w_i = sigmoid(W_w x_i), likewise
    S'_i = diag(alpha_i) S_(i-1)
    S_i = S'_i + k_i (w_i * v_i - S'_i^T (b_i * k_i))^T         y_i = S_i^T q_i / sqrt(e)

with alpha as in `kda`. `negative` doubles b alone. Time O(n (chunk + e) e), state e^2 per head.
Projections, norms and deviations: `zoo.delta_attention`.
"""

from torch import Tensor, nn

from zoo.contract import Identity, Size, Tokens
from zoo.delta_attention import Decay, DeltaAttention, OutputGate, low_rank, sigmoid_gate
from zoo.variants import variants
from zoo.variants.kda import Kda


def _with_one_gate(layer: "Gdn2", other: Kda) -> None:
    for gate in (layer.erase, layer.write):
        gate.weight.copy_(other.beta.weight.repeat_interleave(layer.size.head_dim, dim=0))


@variants.register("gdn2")
class Gdn2(DeltaAttention):
    """The delta rule with separate gates for what is erased and what is written."""

    version = "1.0"
    identities = (Identity(other="kda", where="b = w = beta", prepare=_with_one_gate),)
    spans = 8 / 3

    def __init__(self, size: Size, *, negative: bool = False, gate: OutputGate = "sigmoid") -> None:
        super().__init__(size)
        self.negative = negative
        maps = low_rank(size.dim, size.head_dim, size.dim, bias=False)
        self.decay = Decay(maps, size.heads, size.head_dim, lowest=1.0)
        self.erase = nn.Linear(size.dim, size.dim, bias=False)
        self.write = nn.Linear(size.dim, size.dim, bias=False)
        self.make_output(gate)

    def gates(self, x: Tokens) -> tuple[Tensor, Tensor, Tensor]:
        erase = sigmoid_gate(self.erase(x), self.size.heads, doubled=self.negative)
        return self.decay(x)[0], erase, sigmoid_gate(self.write(x), self.size.heads)
