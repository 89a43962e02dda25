"""No attention: the baseline of a model that never mixes tokens.

    out_i = W_o (W_v x_i + b_v) + b_o

An attention layer in which every token attends to itself alone: the weights are 1, so there are no
queries and keys and no parameters for them. Time O(n d^2) for the projections. The mask has no
effect, and the causal form is the same function.

The mixing of tokens helps only if a variant is more accurate than this baseline, whose cost is that
of everything but the mixing.
"""

from torch import nn

from zoo.contract import Attended, Attention, Context, Mask, Size, State, Tokens, Traits
from zoo.variants import variants


@variants.register("none")
class NoAttention(Attention):
    """The value and output projections, token by token."""

    version = "1.0"
    traits = Traits(causal=True, cross=False, linear=True, stochastic=False, recurrent=True)
    family = "no attention"
    is_baseline = True

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self.value = nn.Linear(size.dim, size.dim)
        self.out = nn.Linear(size.dim, size.dim)

    def forward(self, x: Tokens, context: Context | None = None, mask: Mask = None) -> Attended:
        return Attended(self.out(self.value(x)))

    def analytic_flops(self, n: int) -> int:
        return 2 * 2 * n * self.size.dim**2

    def start(self, batch: int) -> State:
        return (self.zero_state(batch, 0),)

    def extend(self, x: Tokens, real: Mask, state: State) -> tuple[Tokens, State]:
        return self.out(self.value(x)), state
