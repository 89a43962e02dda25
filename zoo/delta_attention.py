"""The common layer of the delta family: activation and norm of q and k, decay, norm and gate.

    q, k, v = silu(conv(W x)), of queries and keys then x / sqrt(|x|^2 + 1e-6) for each head
    out = W_o (RMSNorm_h(y) * gate(x))

with y from `zoo.kernels.delta`, for q / sqrt(e), and one scale of RMSNorm_h for all heads. conv is
the short convolution of `Size.short_conv`, which the papers have with 4 taps; without it SiLU
remains. gate(x) is 1, SiLU(W x), or sigmoid(W_2 W_1 x + b) of the rank of a head.
Deviation of all: values are as wide as keys, so that all variants have heads of one width.
"""

import math
from abc import abstractmethod
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Positions, Size, Tokens, Traits
from zoo.kernels.precision import full_precision, rms_norm
from zoo.projection import Projected
from zoo.recurrent import Heads, Inputs, RecurrentAttention, in_heads

OutputGate = Literal["none", "silu", "sigmoid"]

EPS = 1e-5
"""The epsilon of RMSNorm."""


class DeltaAttention(RecurrentAttention):
    """Projections and output of the family; a subclass writes `gates`.

    Options:
        negative: whether beta, or the erase gate, is in (0, 2) instead of (0, 1).
        gate: the gate of the output: `silu(W x)`, `sigmoid` of a map of low rank, or none.
    """

    family = "delta rule"
    traits = Traits.causal_only(linear=True, stochastic=False, recurrent=True)

    def __init__(self, size: Size, *, steps: int = 1) -> None:
        # A query for each token, a key and a value for each step.
        super().__init__(size, (1 + 2 * steps) * size.dim, bias=False)
        self.steps = steps

    def make_output(self, gate: OutputGate) -> None:
        # A subclass calls it last.
        dim, width = self.size.dim, self.size.head_dim
        maps = {
            "none": lambda: None,
            "silu": lambda: nn.Sequential(nn.Linear(dim, dim, bias=False), nn.SiLU()),
            "sigmoid": lambda: nn.Sequential(low_rank(dim, width, dim, bias=True), nn.Sigmoid()),
        }
        self.gate = maps[gate]()
        self.norm = nn.RMSNorm(width, eps=EPS)
        self.out = nn.Linear(dim, dim, bias=False)

    @abstractmethod
    def gates(self, x: Tokens) -> tuple[Tensor, Tensor, Tensor]:
        """Log decay, erase and write gate, of `steps` n tokens or of one for all."""

    def inputs(self, x: Tokens, projected: Projected, positions: Positions | None) -> Inputs:
        with full_precision(projected) as (u,):
            u = u if self.size.short_conv else F.silu(u)
            u = u.unflatten(-1, (-1, self.size.heads, self.size.head_dim))
            # Not slices, whose gradients are as large as `u`.
            q, *rest = u.unbind(2)
            k, v = torch.stack([unit(key) for key in rest[::2]], dim=2), torch.stack(rest[1::2], 2)
            q = unit(q, q.shape[-1] ** -0.5)[:, :, None]
            # The keys of all steps have the position of their token.
            q, k = (self.apply_rotary(part.flatten(2, 3).transpose(1, 2), positions)
                    for part in (q, k))  # fmt: skip
            k = k.unflatten(1, (self.steps, -1)).permute(0, 2, 3, 1, 4).flatten(2, 3)
            q = q.repeat_interleave(self.steps, dim=2) if self.steps > 1 else q
            # Tokens may be bf16 under autocast, which is disabled here.
            log_decay, erase, write = self.gates(x.to(self.parameter_dtype))
            return Inputs(q, k, v.flatten(1, 2).transpose(1, 2), log_decay, erase * k, write)

    def merge(self, x: Tokens, heads: Heads) -> Tokens:
        tokens = rms_norm(self.norm, heads.transpose(1, 2)).flatten(-2)
        return self.out(tokens if self.gate is None else tokens * self.gate(x))


class Decay(nn.Module):
    """log alpha = -exp(log_rate_h) softplus(map(x) + bias), for each head or each of its channels.

    It starts as in Mamba-2: exp(log_rate) uniform between `lowest` and 16, softplus(bias)
    log-uniform between 0.001 and 0.1. Neither decays where one-dimensional parameters do not.
    """

    def __init__(self, map: nn.Module, heads: int, channels: int, lowest: float) -> None:
        """`map` gives `heads * channels` numbers of a token."""
        super().__init__()
        self.map = map
        self.log_rate = nn.Parameter(torch.empty(heads).uniform_(lowest, 16).log())
        self.bias = nn.Parameter(small_steps(heads * channels))

    def forward(self, x: Tokens) -> tuple[Tensor, Tensor]:
        """Log decay, and the step that it is proportional to, each (b, h, n, channels)."""
        with full_precision(self.map(x), self.bias, self.log_rate) as (raw, bias, log_rate):
            step = softplus(in_heads(raw + bias, len(log_rate)))
            return -log_rate.exp()[:, None, None] * step, step


def small_steps(count: int, low: float = 1e-3, high: float = 1e-1) -> Float[Tensor, " count"]:
    """Numbers whose softplus is log-uniform between `low` and `high`."""
    scale = torch.empty(count).uniform_(math.log(low), math.log(high)).exp()
    return scale + torch.log(-torch.expm1(-scale))


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), by a function that every compiler can differentiate."""
    return -F.logsigmoid(-x)


def low_rank(dim: int, rank: int, width: int, *, bias: bool) -> nn.Sequential:
    return nn.Sequential(nn.Linear(dim, rank, bias=False), nn.Linear(rank, width, bias=bias))


def spread_heads(weight: Any, maps: Any) -> None:
    """Make W_2 W_1 give every channel of a head what `weight`, (h, d), gives the head."""
    down, up = maps
    down.weight[: len(weight)] = weight
    for head, channels in enumerate(up.weight.zero_().chunk(len(weight))):
        channels[:, head] = 1


def sigmoid_gate(logits: Tensor, heads: int, *, doubled: bool = False) -> Tensor:
    """A gate in (0, 1), or (0, 2), (b, h, n, channels), in fp32 at least."""
    with full_precision(logits) as (logits,):
        gate = in_heads(logits.sigmoid(), heads)
        return 2 * gate if doubled else gate


def unit(x: Tensor, scale: float = 1.0) -> Tensor:
    """`x` of length `scale`, shorter where |x| is near 0.001."""
    return x * (scale * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6))
