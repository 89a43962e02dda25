"""Layers that normalise each head of a causal mechanism separately, and multiply it by a gate.

    out = W_o (swish(W_g x) * Norm_h(y))

with y from a recurrence (`GatedAttention`) or another mechanism (`CausalHeads`), and Norm_h a group
norm, one group per head. Linear layers have no bias, as in fla, but in gates of decay, and in
`retention`.
"""

from abc import abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Attention, Queries, Size, State, Tokens
from zoo.projection import ShortConvolution
from zoo.recurrent import Heads, RecurrentAttention
from zoo.spans import SPANS, RealTokensFirst


class GatedHeads(Attention):
    """The norm, the gate and the output projection behind the heads."""

    has_bias: ClassVar[bool] = False  # Of the projections

    def make_output(self) -> None:
        # A subclass calls it last: the order of the parameters decides how a seed initialises each.
        size = self.size
        self.gate = nn.Linear(size.dim, size.dim, bias=self.has_bias)
        self.norm = nn.GroupNorm(size.heads, size.dim)
        self.out = nn.Linear(size.dim, size.dim, bias=self.has_bias)

    def activated(self, gate: Tokens) -> Tokens:
        return F.silu(gate)

    def merge(self, x: Tokens, heads: Heads) -> Tokens:
        gate = self.gate(x)
        # The group norm of a token is the layer norm of its heads, which is faster on a CPU. Sums
        # over many tokens overflow fp16 before the norm, and not behind it.
        normed = F.layer_norm(heads.transpose(1, 2), heads.shape[-1:], eps=self.norm.eps)
        normed = torch.addcmul(self.norm.bias, normed.flatten(-2).to(gate.dtype), self.norm.weight)
        return self.out(self.activated(gate) * normed)


class GatedAttention(GatedHeads, RecurrentAttention):
    def __init__(self, size: Size) -> None:
        super().__init__(size, 3 * size.dim, bias=self.has_bias)


class CausalHeads(GatedHeads, RealTokensFirst):
    """Projections around an inner `attend`, and the norm and the gate behind it."""

    spans = SPANS

    def __init__(self, size: Size, *, plain: int = 0) -> None:
        super().__init__(size)
        self.query_key_value = nn.Linear(size.dim, 3 * size.dim, bias=self.has_bias)
        self.short_conv = ShortConvolution(size, 3 * size.dim, plain=plain)

    def attend_ordered(self, x: Tokens, count: Int[Tensor, " #b"]) -> Tokens:
        return self.merge(x, self.attend(x))

    @abstractmethod
    def attend(self, x: Tokens) -> Queries:
        """The output of each head; padded tokens come last, and have no effect on others."""

    def start(self, batch: int) -> State:
        # A matrix per head, (b, h, e, e), and the number of tokens.
        heads, width = self.size.heads, self.size.head_dim
        sums, count = self.zero_state(batch, heads, width, width), self.zero_state(batch).long()
        return sums, count, *self.zero_past(batch, self.short_conv)
