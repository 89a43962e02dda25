"""Gated recurrent unit in place of attention: a control with a nonlinear state.

Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine
Translation", 2014, arXiv 1406.1078, as `torch.nn.GRU` computes it:

    r_i = sigmoid(W_r x_i + U_r h_(i-1))        z_i = sigmoid(W_z x_i + U_z h_(i-1))
    c_i = tanh(W_c x_i + r_i * (U_c h_(i-1)))   h_i = (1 - z_i) * c_i + z_i * h_(i-1)
    out_i = W_o h_i + b_o

The gates have biases, as in PyTorch. Its next state is no linear function of the last one: it shows
whether state tracking can be learned within the steps of a question. It is computed token by token,
over the real tokens of a sample. Time O(n d^2), state d.
"""

from types import MappingProxyType

import torch
from jaxtyping import Int
from torch import Tensor, nn

from zoo.contract import Mask, Size, State, Tokens, Traits
from zoo.kernels.real_tokens import gather_tokens
from zoo.spans import RealTokensFirst
from zoo.variants import variants


@variants.register("gru")
class GatedRecurrentUnit(RealTokensFirst):
    """A gated recurrent unit, and a projection of its states."""

    version = "1.0"
    traits = Traits.causal_only(linear=True, stochastic=False, recurrent=True)
    family = "no attention"
    expected_failures = MappingProxyType({
        "vmap": "PyTorch has no batching rule for a GRU: raises",
        "compiles": "torch.compile raises: it traces no GRU of PyTorch",
        "export": "as compiles: raises for a dynamic length",
    })  # fmt: skip

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self.recurrence = nn.GRU(size.dim, size.dim, batch_first=True)
        self.out = nn.Linear(size.dim, size.dim)

    def attend_ordered(self, x: Tokens, count: Int[Tensor, " #b"]) -> Tokens:
        return self.out(self.recurrence(x)[0])

    def start(self, batch: int) -> State:
        return (self.zero_state(batch, self.size.dim),)

    def extend(self, x: Tokens, real: Mask, state: State) -> tuple[Tokens, State]:
        heads, _ = self.recurrence(x, state[0].to(x.dtype)[None])
        n = heads.new_full((len(x), 1), x.shape[1]).long() if real is None else real.sum(1, True)
        # A sample without real tokens keeps its state.
        last = gather_tokens(torch.cat([state[0][:, None].to(heads), heads], 1), n)
        return self.out(heads), (last[:, 0].to(state[0]),)
