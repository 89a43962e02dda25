"""Mamba-3: a state space with a trapezoidal rule and data-dependent rotations.

Lahoti, Li, Chen, Wang, Bick, Kolter, Dao, Gu, "Mamba-3: Improved Sequence Modeling using State
Space Principles", 2026, arXiv 2603.15569. With z, u of width 2 d, B, C in R^state and angles a
shared by all heads, and t, r, l of each head, all linear in x,

    step_i = softplus(t_i + c)    alpha_i = exp(-softplus(r_i) step_i)    lambda_i = sigmoid(l_i)
    phi_i = phi_(i-1) + pi tanh(a_i) step_i
    k_i = R(phi_i) (RMSNorm(B_i) + b_k)         q_i = R(phi_i) (RMSNorm(C_i) + b_q)
    S_i = alpha_i (S_(i-1) + (1 - lambda_i) step_i k_(i-1) u_(i-1)^T) + lambda_i step_i k_i u_i^T
    out = W_o ((S_i^T q_i + D_h u_i) * silu(z_i))

R rotates the pairs (0, 1), (2, 3), ... of the first channels, half of them by default, so that the
state is one of complex numbers: it can count, and compute a parity, where that of `mamba2` cannot.
A parity needs an angle of pi, so a step of 1: the first steps are far below, see `max_step`. No
bound holds the angle there, so that it drifts at many times the length of training.
The sum is the recurrence of `zoo.kernels.delta` for the tokens before, whose two terms are added
first, and the token itself:

    m_i = lambda_(i-1) step_(i-1) + (1 - lambda_i) step_i
    P_i = alpha_i P_(i-1) + alpha_i m_i k_(i-1) u_(i-1)^T
    S_i^T q_i = P_i^T q_i + lambda_i step_i (k_i . q_i) u_i

softplus(c) starts log-uniform in (`min_step`, `max_step`), b_k, b_q and D_h at 1. phi is summed in
fp64: in fp32 its error is 0.007 after 32k tokens. Time O(n (chunk + state) d), state `state` * 2 d
per layer, and the last k, u and phi: for equal sizes lower `state`.

Deviations: this is the form of rank 1 (SISO). b_k and b_q have no weight decay. The layer has no
convolution, as published; `Size.short_conv` convolves u, B and C, without an activation.
`Size.rotary` adds no rotation. softplus(r) is at least 1e-4.
"""

import math
from typing import Annotated

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Count, Mask, Queries, Size, State, Tokens, Traits
from zoo.delta_attention import EPS, small_steps, softplus
from zoo.kernels import delta
from zoo.kernels.precision import full_precision
from zoo.kernels.real_tokens import last_tokens, zero_padding
from zoo.projection import Projected, ShortConvolution
from zoo.recurrent import Heads, in_heads, loops_or_chunks
from zoo.registry import UserError
from zoo.spans import RealTokensFirst
from zoo.variants import variants

Gate = Float[Tensor, "b h n 1"]
Angle = Float[Tensor, "b h n p"]  # The angle of each pair of channels
Step = Annotated[float, Field(gt=0)]
SLOWEST = 1e-4  # The least rate of decay


@variants.register("mamba3")
class Mamba3(RealTokensFirst):
    """A state of rotating pairs, to which a token adds itself and the token before.

    Args:
        state: channels of a key, which all heads share but for a bias.
        expand: channels of the values of all heads, over the channels of a token.
        rotated: the part of the channels of a key that is rotated, in pairs.
        min_step, max_step: bounds of the steps of heads at the start, up to what depends on x.
    """

    version = "1.0"
    family = "decay"
    traits = Traits.causal_only(linear=True, stochastic=False, recurrent=True)
    spans = 2
    backend_for = loops_or_chunks
    undecayed = ("query_bias", "key_bias")

    def __init__(
        self, size: Size, *, state: Count = 128, expand: Count = 2,
        rotated: Annotated[float, Field(ge=0, le=1)] = 0.5, min_step: Step = 0.001,
        max_step: Step = 0.1,
    ) -> None:  # fmt: skip
        super().__init__(size)
        if min_step > max_step:
            raise UserError(f"mamba3.min_step={min_step} exceeds max_step={max_step}; lower it")
        inner, heads = expand * size.dim, size.heads
        self.widths, self.pairs = (inner, state, state), int(rotated * state) // 2
        self.query_key_value = nn.Linear(size.dim, sum(self.widths), bias=False)
        self.short_conv = ShortConvolution(size, sum(self.widths), activation=False)
        self.gates = nn.Linear(size.dim, 3 * heads + self.pairs, bias=False)
        self.step_bias = nn.Parameter(small_steps(heads, min_step, max_step))
        self.key_norm, self.query_norm = (nn.RMSNorm(state, eps=EPS) for _ in range(2))
        self.key_bias, self.query_bias = (
            nn.Parameter(torch.ones(heads, 1, state)) for _ in range(2)
        )
        self.skip = nn.Parameter(torch.ones(heads, 1, 1))
        self.gate = nn.Linear(size.dim, inner, bias=False)
        self.out = nn.Linear(inner, size.dim, bias=False)

    def attend_ordered(self, x: Tokens, count: Int[Tensor, " #b"]) -> Tokens:
        return self.extend(x, None, self.start(x.shape[0]))[0]

    def start(self, batch: int) -> State:
        # A matrix per head, the last key, value and angle, projections.
        inner, state, _ = self.widths
        heads, width = self.size.heads, inner // self.size.heads
        sums, key, value, angle = (
            self.zero_state(batch, heads, *shape)
            for shape in ((state, width), (1, state), (1, width), (1, self.pairs))
        )
        return sums, key, value, angle.double(), *self.zero_past(batch, self.short_conv)

    def extend(self, x: Tokens, real: Mask, state: State) -> tuple[Tokens, State]:
        projected, past = self.short_conv.extend(self.query_key_value(x), state[4:], real)
        with full_precision(projected, self.gates(x)) as (projected, gates):
            log_decay, now, late, angle = self._steps(gates, real, state[3])
            u, k, q = self._inputs(projected, angle)
            sums, key, value = state[:3]
            heads, *ends = trapezoid(q, k, u, log_decay, now, late, sums, key, value, real)
            heads = heads + self.skip.to(u.dtype) * u
        return self._merge(x, heads), (*ends, angle[:, :, -1:], *past)

    def _steps(
        self, gates: Float[Tensor, "b n _"], real: Mask, before: Float[Tensor, "b h 1 p"]
    ) -> tuple[Gate, Gate, Gate, Angle]:
        # Log decay, the weights of a token and of the one before it, and angles.
        heads = self.size.heads
        t, rate, balance, turn = gates.split([*(heads,) * 3, self.pairs], dim=-1)
        # A padded token neither decays, nor writes, nor rotates.
        step = zero_padding(in_heads(softplus(t + self.step_bias), heads), real)
        log_decay = -in_heads(softplus(rate), heads).clamp_min(SLOWEST) * step
        balance = in_heads(balance, heads)
        turns = math.pi * turn.tanh()[:, None] * step
        angle = before + turns.double().cumsum(2)
        return log_decay, balance.sigmoid() * step, (-balance).sigmoid() * step, angle

    def _inputs(self, projected: Projected, angle: Angle) -> tuple[Heads, Queries, Queries]:
        u, k, q = projected.split(self.widths, dim=-1)
        phi = angle.remainder(2 * math.pi).to(u.dtype)
        cos, sin, rotated = phi.cos(), phi.sin(), []
        for part, norm, bias in (
            (k, self.key_norm, self.key_bias), (q, self.query_norm, self.query_bias)
        ):  # fmt: skip
            normed = F.rms_norm(part, part.shape[-1:], norm.weight.to(u.dtype), EPS)
            rotated.append(rotate(normed[:, None] + bias, cos, sin))
        return in_heads(u, self.size.heads), *rotated

    def _merge(self, x: Tokens, heads: Heads) -> Tokens:
        gate = self.gate(x).to(heads.dtype)
        tokens = heads.transpose(1, 2).flatten(-2) * F.silu(gate)
        return self.out(tokens.to(x.dtype))


def trapezoid(
    q: Queries, k: Queries, u: Heads, log_decay: Gate, now: Gate, late: Gate,
    sums: Float[Tensor, "b h e f"], key: Float[Tensor, "b h 1 e"], value: Float[Tensor, "b h 1 f"],
    real: Mask = None,
) -> tuple[Heads, Tensor, Tensor, Tensor]:  # fmt: skip
    # S_i^T q_i, and S, key and value of the last token. `now` weighs a token, `late` the one before
    # it: lambda step, and (1 - lambda) step.
    keys = torch.cat([key.to(k.dtype), k], dim=2)
    values = torch.cat([value.to(u.dtype), u], dim=2)
    # The state before has the own term of the last key.
    before = log_decay.exp() * (late + F.pad(now, (0, 0, 1, 0))[:, :, :-1])
    y, sums = delta.extend(q, keys[:, :, :-1], values[:, :, :-1], log_decay, None, before, sums)
    own = now * u
    sums = sums + k[:, :, -1:].mT * own[:, :, -1:]
    y = y + (k * q).sum(-1, keepdim=True) * own
    return y, sums, last_tokens(keys, 1, real), last_tokens(values, 1, real)


def rotate(x: Queries, cos: Angle, sin: Angle) -> Queries:
    pairs = 2 * cos.shape[-1]
    a, b = x[..., :pairs].unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
    return torch.cat([turned, x[..., pairs:]], dim=-1)
