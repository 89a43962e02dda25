"""Gated linear attention: a recurrence with data-dependent decay by channel.

Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", 2023, arXiv
2312.06635, section 4. With alpha_i in (0, 1)^e for each token and head,

    alpha_i = sigmoid(W_2 W_1 x_i + b)^(1 / temperature)
    S_i = diag(alpha_i) S_(i-1) + k_i v_i^T         y_i = q_i^T S_i / sqrt(e)
    out_i = W_o (swish(W_r x_i) * Norm_h(y_i))

On a CPU computed token by token (`zoo.kernels.recurrence`), elsewhere in chunks of 2^L tokens.
Between chunks there is the state. Inside a chunk, each pair j < i is computed once: at the one of
the L levels where j is in the left half of a block and i in the right half. There

    alpha_(j+1) ... alpha_i  =  (alpha_(j+1) ... alpha_mid) (alpha_(mid+1) ... alpha_i)

splits at the middle of the block into a factor of the key and one of the query, so that a level is
one matrix product per block. Each factor is the exponential of its own sum of log alpha, never of a
difference of sums, and at most 1: what underflows is zero, and nothing is divided by it. Time
O(n (chunk + e) e), memory O(n (e log chunk + chunk + e^2 / chunk)) per head.

Deviations: the form that is not causal adds to the sum over j <= i that of the same recurrence on
the reversed sequence, over j > i, with the same gates: alpha_i ... alpha_(j-1); the paper has the
causal form alone. Padded tokens are removed from the sequence. Keys are as wide as values, where
the paper halves them. The paper splits pairs inside a chunk in two levels, the lower one in log
space with an entry for each pair and channel. Norm_h is a group norm, one group per head.
"""

from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import AfterValidator, Field
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Count, Mask, Positions, Queries, Size, State, Token, Tokens, Traits
from zoo.gated import GatedAttention
from zoo.kernels import causal_sum
from zoo.kernels.blocks import in_blocks
from zoo.kernels.chunk_states import chunk_states
from zoo.kernels.precision import full_precision
from zoo.kernels.real_tokens import zero_padding
from zoo.kernels.recurrence import decayed_sum
from zoo.variants import variants

Chunks = Float[Tensor, "b h t c e"]
Halves = Float[Tensor, "b h t s w e"]


def _power_of_two(chunk: int) -> int:
    if chunk < 1 or chunk & (chunk - 1):
        raise ValueError("must be a power of two; try 64")
    return chunk


@variants.register("gated-linear")
class GatedLinear(GatedAttention):
    """Linear attention with a forget gate for each token and key channel.

    Axis letters beyond the contract's: `t` chunks, `c` tokens of a chunk, `s` blocks of a chunk,
    `w` tokens of half a block.
    """

    traits = Traits(causal=True, cross=False, linear=True, stochastic=False, recurrent=True)
    family = "decay"

    def __init__(
        self,
        size: Size,
        *,
        gate_rank: Count = 16,
        temperature: Annotated[float, Field(gt=0)] = 16.0,
        chunk: Annotated[int, AfterValidator(_power_of_two)] = 64,
    ) -> None:
        """Make the parameters.

        Args:
            size: see `Size`.
            gate_rank: rank of the map from a token to its forget gates.
            temperature: the root taken of the gates; a larger one makes the decay slower.
            chunk: tokens of a chunk, a power of two; the result does not depend on it.
        """
        super().__init__(size)
        self.temperature, self.chunk = temperature, chunk
        self.forget = nn.Sequential(
            nn.Linear(size.dim, gate_rank, bias=False), nn.Linear(gate_rank, size.dim)
        )
        self._make_output()

    def attend(self, x: Tokens, real: Mask | None) -> Queries:
        """See `GatedAttention.attend`."""
        projected = self.query_key_value(x, real)
        with full_precision(*self._project(x, projected)) as (q, k, v, log_alpha):
            k = zero_padding(k, real)
            return decayed_sum(q, k, v, log_alpha, self.size.causal, self._in_chunks)

    def _in_chunks(self, q: Queries, k: Queries, v: Queries, log_alpha: Queries) -> Queries:
        """The same as `decayed_sum`, by matrix products."""
        parts = q, k, v, log_alpha
        # The second term is that of j = i.
        heads = recur(*parts, self.chunk) + (q * k).sum(-1, keepdim=True) * v
        if self.size.causal:
            return heads
        return heads + recur(*(part.flip(2) for part in parts), chunk=self.chunk).flip(2)

    def step(self, x: Token, state: State) -> tuple[Token, State]:
        """See `Attention.step`."""
        (sums, count, *past), token = state, x[:, None]
        projected, past = self.query_key_value.step(token, tuple(past))
        parts = self._project(token, projected, count[:, None])
        with full_precision(*parts) as (q, k, v, log_alpha):
            heads, sums = causal_sum.total_step(q, k, v, log_alpha.exp().mT * sums)
        return self._merge(token, heads)[:, 0], (sums, count + 1, *past)

    def _project(
        self, x: Tokens, projected: Tensor, positions: Positions | None = None
    ) -> tuple[Queries, ...]:
        """Queries, already scaled, keys, values, and the logarithms of the gates."""
        # fp32 at least: sums over many tokens, and exponentials of sums.
        with full_precision(projected, self.forget(x)) as (parts, gates):
            q, k, v = parts.unflatten(-1, (3, self.size.heads, -1)).permute(2, 0, 3, 1, 4)
            gates = gates.unflatten(-1, (self.size.heads, -1)).transpose(1, 2)
            q = self.apply_rotary(q * q.shape[-1] ** -0.5, positions)
            return q, self.apply_rotary(k, positions), v, F.logsigmoid(gates) / self.temperature


def recur(q: Queries, k: Queries, v: Queries, log_alpha: Queries, chunk: int) -> Queries:
    """`sum_{j < i} (q_i . (alpha_(j+1) ... alpha_i k_j)) v_j`."""
    n = q.shape[2]
    if not torch.compiler.is_exporting():
        chunk = min(chunk, 1 << (n - 1).bit_length())
    q, k, v, log_alpha = (in_blocks(part, chunk) for part in (q, k, v, log_alpha))
    decay = log_alpha.sum(-2).exp()[..., None]
    past = chunk_states((k * sum_after(log_alpha).exp()).mT @ v, decay)
    sums = (q * log_alpha.cumsum(-2).exp()) @ past
    half = 1
    while half < chunk:
        sums = sums + between_halves(q, k, v, log_alpha, half)
        half *= 2
    return sums.flatten(2, 3)[:, :, :n]


def between_halves(q: Chunks, k: Chunks, v: Chunks, log_alpha: Chunks, half: int) -> Chunks:
    """The sum of each right half, of `half` tokens, over the left half before it."""
    (k, _), (v, _), (_, q) = (halves(part, half) for part in (k, v, q))
    left, right = halves(log_alpha, half)
    sums = (q * right.cumsum(-2).exp()) @ (k * sum_after(left).exp()).mT @ v
    return torch.stack([torch.zeros_like(sums), sums], dim=4).flatten(3, 5)


def halves(x: Chunks, half: int) -> tuple[Halves, Halves]:
    """Left and right halves of the blocks of twice `half` tokens."""
    left, right = x.unflatten(3, (-1, 2, half)).unbind(4)
    return left, right


def sum_after(x: Float[Tensor, "*blocks c e"]) -> Float[Tensor, "*blocks c e"]:
    """Sum over the later tokens of a block."""
    later = F.pad(x[..., 1:, :], (0, 0, 0, 1))
    return later.flip(-2).cumsum(-2).flip(-2)
