"""Kimi Delta Attention: the delta rule with a data-dependent decay by channel.

Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture", 2025, arXiv 2510.26692,
section 3:

    alpha_i = exp(-exp(a_h) softplus(W_2 W_1 x_i + c)), in (0, 1)^e     beta_i = sigmoid(W_b x_i)
    S_i = (I - beta_i k_i k_i^T) diag(alpha_i) S_(i-1) + beta_i k_i v_i^T
    y_i = S_i^T q_i / sqrt(e)

The state decays before a value is erased from it. exp(a_h) starts uniform in (1, 16), softplus(c)
log-uniform in (0.001, 0.1); W_1 has the rank of a head. `negative` doubles beta, as in `delta`.
Time O(n (chunk + e) e), state e^2 per head. Projections, norms and deviations:
`zoo.delta_attention`.
"""

from zoo.contract import Identity, Size
from zoo.delta_attention import Decay, OutputGate, low_rank, spread_heads
from zoo.variants import variants
from zoo.variants.gated_delta import GatedDelta


def _with_equal_channels(layer: "Kda", other: GatedDelta) -> None:
    spread_heads(other.decay.map.weight, layer.decay.map)
    layer.decay.bias.copy_(other.decay.bias.repeat_interleave(layer.size.head_dim))


@variants.register("kda")
class Kda(GatedDelta):
    """The delta rule, and a decay of the state for each token and channel of the keys."""

    version = "1.0"
    identities = (
        Identity(
            other="gated-delta", where="equal channels", options={"gate": "none"},
            other_options={"gate": "none"}, prepare=_with_equal_channels,
        ),
    )  # fmt: skip
    spans = 8 / 3

    def __init__(self, size: Size, *, negative: bool = False, gate: OutputGate = "sigmoid") -> None:
        super().__init__(size, negative=negative, gate=gate)

    def make_decay(self, size: Size) -> Decay:
        maps = low_rank(size.dim, size.head_dim, size.dim, bias=False)
        return Decay(maps, size.heads, size.head_dim, lowest=1.0)
