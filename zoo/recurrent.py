"""Layers around a recurrence over tokens (`zoo.kernels.delta`): projections, padding, state.

A subclass writes `inputs`, from the projections to what the recurrence reads, and `merge`, from its
outputs to tokens. Positions are ranks among the real tokens of a sample: a padded token neither
writes nor decays.
"""

from abc import abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.contract import Attended, Attention, Context, Mask, Positions, Size, State, Tokens
from zoo.kernels import delta, eager
from zoo.kernels.precision import without_autocast
from zoo.kernels.real_tokens import count_after, positions_after, token_ranks, zero_padding
from zoo.projection import Projected, ShortConvolution
from zoo.recompute import in_parts
from zoo.spans import in_spans

Heads = Float[Tensor, "b h n f"]


class Inputs(NamedTuple):
    """The arguments of `zoo.kernels.delta.attend`, in fp32 at least."""

    q: delta.Keys
    k: delta.Keys
    v: delta.Values
    log_decay: delta.Gate
    erased: delta.Keys | None = None
    write: delta.ValueGate | None = None


def loops_or_chunks(self: Attention, x: Tokens) -> str:
    """See `Attention.backend_for`: compiled loops run eagerly, on a CPU."""
    return "recurrent" if eager.on_cpu(x) else "chunked"


class RecurrentAttention(Attention):
    """Projections of tokens, a recurrence, and what a subclass makes of both.

    Attributes:
        chunk: tokens of a chunk, where the recurrence is computed in chunks.
        steps: steps of the recurrence for each token; the last one reads.
    """

    spans: float = 2
    chunk: int = delta.CHUNK
    steps: int = 1
    backend_for = loops_or_chunks

    def __init__(self, size: Size, width: int, *, bias: bool, activation: bool = True) -> None:
        """Make the projection of queries, keys and values, of that width in all."""
        super().__init__(size)
        self.query_key_value = nn.Linear(size.dim, width, bias=bias)
        self.short_conv = ShortConvolution(size, width, activation=activation)

    @property
    def batch_parts(self) -> int:
        """See `zoo.recompute.in_parts`."""
        return 1 if self.size.causal else 2

    @abstractmethod
    def inputs(self, x: Tokens, projected: Projected, positions: Positions | None) -> Inputs:
        """The inputs of the recurrence, of `steps` n tokens.

        Args:
            x: the tokens.
            projected: their projections, behind the short convolution if there is one.
            positions: their positions, where they differ from their indices.
        """

    def read(self, heads: Heads, inputs: Inputs) -> Heads:
        """The outputs of the heads, from the outputs of the recurrence and what it read."""
        return heads

    @abstractmethod
    def merge(self, x: Tokens, heads: Heads) -> Tokens:
        """New tokens from the outputs of the heads."""

    @in_spans
    @in_parts
    def forward(self, x: Tokens, context: Context | None = None, mask: Mask = None) -> Attended:
        """Project, run the recurrence, merge the heads; see `Attention.forward`."""
        return Attended(self.merge(x, self._heads(x, mask)))

    def _heads(self, x: Tokens, mask: Mask) -> Heads:
        positions = None if mask is None else token_ranks(mask)
        projected = self.short_conv(self.query_key_value(x), mask)
        inputs = self.inputs(x, projected, positions)
        inputs = without_padding(inputs, mask)
        with without_autocast(x):
            heads = delta.attend(*inputs, chunk=self.chunk, causal=self.size.causal)
        return self.read(heads[:, :, self.steps - 1 :: self.steps], inputs)

    def state_shape(self) -> tuple[int, int]:
        """The channels of a key and of a value."""
        return self.size.head_dim, self.size.head_dim

    def start(self, batch: int) -> State:
        """See `Attention.start`: a matrix per head, and the number of tokens."""
        state = self.zero_state(batch, self.size.heads, *self.state_shape())
        return state, self.zero_state(batch).long(), *self.zero_past(batch, self.short_conv)

    def extend(self, x: Tokens, real: Mask, state: State) -> tuple[Tokens, State]:
        """See `Attention.extend`."""
        (matrix, count, *past), n = state, x.shape[1]
        projected, past = self.short_conv.extend(self.query_key_value(x), tuple(past), real)
        inputs = self.inputs(x, projected, positions_after(count, n))
        with without_autocast(x):
            if n == 1 and real is None:
                heads, matrix = delta.step(*inputs, matrix)
            else:
                inputs = without_padding(inputs, real)
                heads, matrix = delta.extend(*inputs, matrix, chunk=self.chunk)
                heads = heads[:, :, self.steps - 1 :: self.steps]
        return self.merge(x, self.read(heads, inputs)), (matrix, count_after(count, n, real), *past)


def without_padding(inputs: Inputs, mask: Mask) -> Inputs:
    """Inputs of one or more steps for each token, with which padded tokens leave the state."""
    if mask is None:
        return inputs
    real = mask.repeat_interleave(inputs.k.shape[2] // mask.shape[1], dim=1)
    log_decay = torch.where(real[:, None, :, None], inputs.log_decay, 0.0)
    return inputs._replace(k=zero_padding(inputs.k, real), log_decay=log_decay)


def in_heads(x: Float[Tensor, "b n _"], heads: int) -> Heads:
    """(b, h, n, f) from (b, n, h f)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)
