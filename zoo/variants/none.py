"""No attention: the floor of what a model can do whose tokens never meet.

    out_i = W_o (W_v x_i + b_v) + b_o

What is left of an attention layer when every token attends to itself alone: the weights are 1, so
queries and keys have no say and no parameters. Time O(n d^2) for the projections, and nothing on
top. Padding needs no care, and there is nothing to normalise.

It stands in comparisons as the row that a variant must beat before its mixing of tokens can be
said to help; its cost is that of everything round the mixing. Causal, since output i depends on
token i, which is one of 0..i; the causal form is the same function.
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo.contract import Attended, Attention, Size, State, Traits
from zoo.variants import variants


@variants.register("none")
class NoAttention(Attention):
    """The value and output projections, token by token."""

    traits = Traits(causal=True, cross=False, linear=True, stochastic=False, recurrent=True)

    def __init__(self, size: Size) -> None:
        """Make the two projections, each (d -> d) with a bias.

        Args:
            size: what every variant is built from; only `dim` matters.
        """
        super().__init__(size)
        self.value = nn.Linear(size.dim, size.dim)
        self.out = nn.Linear(size.dim, size.dim)

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        context: Float[Tensor, "b m d"],
        mask: Bool[Tensor, "b m"] | None,
    ) -> Attended:
        """See `Attention.forward`."""
        self.require_self(x, context)
        return Attended(self.out(self.value(x)))

    def start(self, batch: int) -> State:
        """See `Attention.start`: nothing is remembered."""
        return (self.zero_state(batch, 0),)

    def step(self, x: Float[Tensor, "b d"], state: State) -> tuple[Float[Tensor, "b d"], State]:
        """See `Attention.step`."""
        return self.out(self.value(x)), state
