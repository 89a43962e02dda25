"""A layer that normalises each head of a recurrence separately, and multiplies it by a gate.

    out = W_o (swish(W_g x) * Norm_h(y))

with y from the recurrence and Norm_h a group norm, one group per head.
"""

from torch import nn
from torch.nn import functional as F

from zoo.contract import Size, Tokens
from zoo.recurrent import Heads, RecurrentAttention


class GatedAttention(RecurrentAttention):
    """Projections in front of a recurrence, norm and gate behind it."""

    def __init__(self, size: Size) -> None:
        """Make the projection of queries, keys and values."""
        super().__init__(size, 3 * size.dim, bias=True)

    def _make_output(self) -> None:
        """Make gate, norm and output projection.

        A subclass calls it last: the order of the parameters decides how a seed initialises each.
        """
        size = self.size
        self.gate = nn.Linear(size.dim, size.dim)
        self.norm = nn.GroupNorm(size.heads, size.dim)
        self.out = nn.Linear(size.dim, size.dim)

    def merge(self, x: Tokens, heads: Heads) -> Tokens:
        """Normalise each head, multiply by the gate, apply the output projection."""
        gate = self.gate(x)
        tokens = heads.transpose(1, 2).to(gate.dtype)
        # The group norm of a token is the layer norm of its heads, which is faster on a CPU.
        normed = F.layer_norm(tokens, tokens.shape[-1:], eps=self.norm.eps).flatten(-2)
        return self.out(F.silu(gate) * (normed * self.norm.weight + self.norm.bias))
