"""RetNet's retention: linear attention with fixed exponential decay by head.

Sun et al., "Retentive Network: A Successor to Transformer for Large Language Models", 2023, arXiv
2307.08621, section 2. With gamma_a = 1 - 2^(-5 - a) for head a, counted from 0, and R_i the
rotation of channel pairs by the angles i theta_c, theta_c = 10000^(-2c / e),

    S_i = gamma S_(i-1) + (R_i k_i) v_i^T         y_i = (R_i q_i)^T S_i / sqrt(e)
    y_i = sum_{j <= i} gamma^(i - j) (R_i q_i) . (R_j k_j) / sqrt(e) v_j
    out = W_o (swish(x W_g) * GroupNorm_h(y))

On a CPU computed token by token (`zoo.kernels.recurrence`), elsewhere in chunks, exactly: inside a
chunk by the sum, between chunks by the state. The powers of gamma are at most 1. Time
O(n (chunk + e) e) and memory O(n (chunk + e^2 / chunk)) per head in chunks, O(n e^2) and O(n e)
token by token.

Deviations: the form that is not causal decays by distance, gamma^|i - j|, over all j; the paper has
the causal form alone. Positions are ranks among the real tokens of a sample. The paper's
normalisations of q k^T and of its row sums scale each y_i by a number, which cancels in the group
norm, up to its epsilon; they are left out. Rotary positions are part of the mechanism:
`Size.rotary` adds none. Projections have a bias. Values are as wide as keys, where the paper
doubles them, so that all variants have heads of one width.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo.contract import Count, Mask, Queries, Size, State, Token, Tokens, Traits
from zoo.gated import GatedAttention
from zoo.kernels import causal_sum
from zoo.kernels.blocks import block_size, in_blocks
from zoo.kernels.chunk_states import chunk_states
from zoo.kernels.precision import full_precision
from zoo.kernels.real_tokens import zero_padding
from zoo.kernels.recurrence import decayed_sum
from zoo.kernels.rotary import apply_rotary
from zoo.registry import UserError
from zoo.variants import variants


@variants.register("retention")
class Retention(GatedAttention):
    """Linear attention with rotary positions, and an exponential decay for each head."""

    traits = Traits(causal=True, cross=False, linear=True, stochastic=False, recurrent=True)
    family = "decay"

    def __init__(self, size: Size, *, chunk: Count = 128) -> None:
        """`chunk`: tokens of a chunk; the result does not depend on it."""
        super().__init__(size)
        if size.head_dim % 2:
            raise UserError(
                f"retention rotates pairs of channels, and dim={size.dim} over heads={size.heads} "
                f"leaves {size.head_dim}; choose a dim that is a multiple of twice the heads"
            )
        self.chunk = chunk
        self._make_output()

    def attend(self, x: Tokens, real: Mask | None) -> Queries:
        """See `GatedAttention.attend`."""
        projected = self.query_key_value(x, real).unflatten(-1, (3, self.size.heads, -1))
        # fp32 at least: the state is a sum over many tokens.
        with full_precision(projected) as (parts,):
            # One rotation for queries and keys.
            rotated = apply_rotary(parts[:, :, :2].flatten(2, 3).transpose(1, 2))
            q, k, v = *rotated.chunk(2, dim=1), parts[:, :, 2].transpose(1, 2)
            q, k = q * q.shape[-1] ** -0.5, zero_padding(k, real)
            return decayed_sum(
                q, k, v, log_gamma(q)[None, :, None, None], self.size.causal,
                lambda q, k, v, _: retain(q, k, v, self.chunk, self.size.causal),
            )  # fmt: skip

    def step(self, x: Token, state: State) -> tuple[Token, State]:
        """See `Attention.step`."""
        (sums, count, *past), token = state, x[:, None]
        projected, past = self.query_key_value.step(token, tuple(past))
        with full_precision(projected.unflatten(-1, (3, self.size.heads, -1))) as (parts,):
            q, k, v = parts.to(sums.dtype).permute(2, 0, 3, 1, 4)
            q, k = (apply_rotary(part, count[:, None]) for part in (q * q.shape[-1] ** -0.5, k))
            gamma = decay(torch.ones(1, 1, dtype=torch.int64, device=x.device), q)
            heads, sums = causal_sum.total_step(q, k, v, gamma * sums)
        return self._merge(token, heads)[:, 0], (sums, count + 1, *past)


def log_gamma(like: Queries) -> Float[Tensor, " h"]:
    """The logarithm of the decay of every head, in float64."""
    heads = torch.arange(like.shape[1], dtype=torch.float64, device=like.device)
    return torch.log1p(-torch.exp2(-5 - heads))


def decay(steps: Int[Tensor, "..."], like: Queries) -> Float[Tensor, "h ..."]:
    """gamma^steps for every head."""
    return (log_gamma(like).reshape(-1, *(1 for _ in steps.shape)) * steps).exp().to(like.dtype)


def retain(q: Queries, k: Queries, v: Queries, chunk: int, causal: bool) -> Queries:
    """`sum_j gamma^|i - j| (q_i . k_j) v_j`, over j <= i if causal; k is zero at padded tokens."""
    n = q.shape[2]
    chunk = block_size(chunk, n)
    step = torch.arange(chunk, device=q.device)
    pairwise = decay((step[:, None] - step).abs(), q)[:, None]
    from_past, from_future, to_end, to_start = (
        decay(steps, q)[:, None, :, None]
        for steps in (step + 1, chunk - step, chunk - 1 - step, step)
    )
    per_chunk = decay(torch.full((1, 1, 1), chunk, device=q.device), q)[None]
    q, k, v = (in_blocks(part, chunk) for part in (q, k, v))
    weights = (q @ k.mT) * (pairwise.tril() if causal else pairwise)
    past = chunk_states((k * to_end).mT @ v, per_chunk)
    sums = weights @ v + (q * from_past) @ past
    if not causal:
        future = chunk_states(((k * to_start).mT @ v).flip(2), per_chunk).flip(2)
        sums = sums + (q * from_future) @ future
    return sums.flatten(2, 3)[:, :, :n]
