"""RWKV-7: a recurrence that erases along one key and writes along another.

Peng et al., "RWKV-7 Goose with Expressive Dynamic State Evolution", 2025, arXiv 2503.14456. With
z_i = x_i + mu_z * (x_(i-1) - x_i) for each of the six inputs below, and per head,

    r = W_r z_r    k = W_k z_k    v = W_v z_v    a = sigmoid(low_rank(z_a))
    w = exp(-e^(-1/2) sigmoid(low_rank(z_w)))    g = W_2 sigmoid(W_1 z_g)
    khat = k * xi / |k * xi|                     ktilde = k * (1 + (a - 1) * alpha)
    S_i = diag(w_i) S_(i-1) - (a_i * khat_i) (khat_i^T S_(i-1)) + ktilde_i v_i^T
    out_i = W_o (g_i * (GroupNorm_h(S_i^T r_i) + (r_i . (rho * ktilde_i)) v_i))

Two steps of the recurrence of `zoo.kernels.delta` for each token: the first erases a_i * khat_i /
w_i along khat_i, the second decays the state and writes. Decays are at least e^(-0.61). Time
O(n (c + e) e), with chunks of c tokens; state e^2 per head.

The ranks are the published ones: multiples of 32 near 2.5 d^(1/2) e / 64 for decay and rate, and
near 5 d^(1/2) for the gate.

Deviations: values have no residual from the first layer, whose values a layer does not know. The
low-rank maps and W_o start as linear layers do; in the published code as zero, which leaves others
without gradients. Projections and W_2 have a bias. Starting values that depend on the depth are as
in the first layer, and the weight of the norm is 1: as published in the last layer, and less than 1
in others, by the number of layers, which a layer does not know. Positions are ranks among the real
tokens; the recurrence depends on them, and `Size.rotary` adds none.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Mask, Natural, Queries, Size, State, Tokens, Traits
from zoo.kernels import delta
from zoo.kernels.precision import full_precision, without_autocast
from zoo.kernels.real_tokens import last_tokens
from zoo.projection import ShortConvolution
from zoo.recurrent import Inputs, loops_or_chunks, without_padding
from zoo.spans import RealTokensFirst
from zoo.variants import variants

SLOWEST = math.exp(-0.5)

Mixes = Float[Tensor, "b n d"]
Heads = Float[Tensor, "b n h e"]
# The inputs z; mu starts as 1 - (c / d)^power in channel c.
INPUTS = {"r": 0.2, "k": 0.7, "v": 0.7, "w": 0.9, "a": 0.9, "g": 0.2}


@variants.register("rwkv7")
class Rwkv7(RealTokensFirst):
    """The generalised delta rule of RWKV-7, with its token shift, bonus and gate.

    Args:
        rank: rank of the maps to decay, rate and gate; 0 for the published ranks.
    """

    version = "1.0"
    family = "delta rule"
    traits = Traits.causal_only(linear=True, stochastic=False, recurrent=True)
    spans = 8 / 3
    backend_for = loops_or_chunks
    undecayed = ("mix",)

    def __init__(self, size: Size, *, rank: Natural = 0) -> None:
        super().__init__(size)
        dim, width = size.dim, size.head_dim
        channel = torch.arange(dim)
        ramp, within = channel / max(dim - 1, 1), (channel % width) / max(width - 1, 1) * 2 - 1
        zigzag = within * within.abs()
        powers = torch.tensor(list(INPUTS.values()))[:, None]
        self.mix = nn.Parameter(1 - (channel / dim) ** powers)
        self.query, self.query_conv = nn.Linear(dim, dim), ShortConvolution(size, dim)
        self.key, self.key_conv = nn.Linear(dim, dim), ShortConvolution(size, dim)
        self.value, self.value_conv = nn.Linear(dim, dim), ShortConvolution(size, dim)
        for projection, gain in ((self.query, 1.0), (self.key, 0.1), (self.value, 1.0)):
            nn.init.orthogonal_(projection.weight, gain)
        of_rates, of_gate = (
            rank or published_rank(2.5 * width / 64, dim),
            rank or published_rank(5.0, dim),
        )
        self.decay, self.rate = (low_rank(dim, of_rates, f) for f in (nn.Tanh(), nn.Identity()))
        self.gate = low_rank(dim, of_gate, nn.Sigmoid())
        with torch.no_grad():
            self.decay.get_parameter("2.bias").copy_(6 * ramp - 5.5 + 2.5 * zigzag)
            self.rate.get_parameter("2.bias").copy_(0.4 * (ramp - 0.5) - 0.19 + 0.3 * zigzag)
        self.erased = nn.Parameter(0.71 - 0.1 * (ramp - 0.5))
        self.written = nn.Parameter(torch.full((dim,), 1.02))
        self.bonus = nn.Parameter(torch.full((dim,), -0.04))
        self.norm = nn.GroupNorm(size.heads, dim, eps=width * 1e-5)
        self.out = nn.Linear(dim, dim)

    def attend_ordered(self, x: Tokens, count: Int[Tensor, " #b"]) -> Tokens:
        z = self._inputs(x, F.pad(x, (0, 0, 1, 0))[:, :-1])
        convolved = (conv(layer(z[name])) for name, layer, conv in self._projections())
        r, k, v, inputs = self._steps(z, *convolved)
        with without_autocast(x):
            heads = delta.attend(*inputs)[:, :, 1::2]
        return self._merge(heads, r, k, v, z["g"])

    def start(self, batch: int) -> State:
        # A matrix per head, the last token, and projections before.
        heads, width = self.size.heads, self.size.head_dim
        past = self.zero_past(batch, self.query_conv, self.key_conv, self.value_conv)
        state = self.zero_state(batch, heads, width, width)
        return state, self.zero_state(batch, self.size.dim), *past

    def extend(self, x: Tokens, real: Mask, state: State) -> tuple[Tokens, State]:
        sums, before, *past = state
        tokens = torch.cat([before[:, None].to(x.dtype), x], dim=1)
        z, projected, after = self._inputs(x, tokens[:, :-1]), [], []
        each = len(past) // 3
        for i, (name, layer, conv) in enumerate(self._projections()):
            u, rest = conv.extend(layer(z[name]), tuple(past[i * each : (i + 1) * each]), real)
            projected.append(u)
            after += rest
        r, k, v, inputs = self._steps(z, *projected)
        with without_autocast(x):
            if x.shape[1] == 1 and real is None:
                heads, sums = delta.step(*inputs, sums)
            else:
                heads, sums = delta.extend(*without_padding(inputs, real), sums)
                heads = heads[:, :, 1::2]
        last = last_tokens(tokens, 1, real)[:, 0].to(before.dtype)
        return self._merge(heads, r, k, v, z["g"]), (sums, last, *after)

    def _projections(self) -> list[tuple[str, nn.Module, ShortConvolution]]:
        return [
            ("r", self.query, self.query_conv),
            ("k", self.key, self.key_conv),
            ("v", self.value, self.value_conv),
        ]

    def _inputs(self, x: Tokens, before: Tokens) -> dict[str, Mixes]:
        mixed = x + self.mix[:, None, None] * (before - x)
        return dict(zip(INPUTS, mixed, strict=True))

    def _steps(
        self, z: dict[str, Mixes], r: Mixes, k: Mixes, v: Mixes
    ) -> tuple[Heads, Heads, Heads, Inputs]:
        # r, ktilde and v of each head, (b, n, h, e), and the 2 n steps of the recurrence.
        # The second one of a token reads.
        a, log_w = self.rate(z["a"]).sigmoid(), -SLOWEST * self.decay(z["w"]).sigmoid()
        terms = r, k * (1 + (a - 1) * self.written), v, log_w, a, k * self.erased
        with full_precision(*(x.unflatten(-1, (self.size.heads, -1)) for x in terms)) as terms:
            r, k, v, log_w, a, erased = terms
            zero, erased = torch.zeros_like(r), F.normalize(erased, dim=-1)
            gate = a * erased * (-log_w).exp()
            steps = (zero, r), (gate, k), (zero, v), (zero, log_w), (erased, zero)
            joined = (torch.stack(each, dim=2).flatten(1, 2).transpose(1, 2) for each in steps)
            return r, k, v, Inputs(*joined)

    def _merge(self, heads: Queries, r: Heads, k: Heads, v: Heads, z: Mixes) -> Tokens:
        bonus = (r * self.bonus.to(k.dtype).unflatten(0, (self.size.heads, -1)) * k).sum(-1, True)
        heads = heads.transpose(1, 2)
        normed = F.layer_norm(heads, heads.shape[-1:], eps=self.norm.eps).flatten(-2)
        normed = normed * self.norm.weight + self.norm.bias
        gate = self.gate(z)
        return self.out(gate * (normed + (bonus * v).flatten(-2)).to(gate.dtype))


def published_rank(factor: float, dim: int) -> int:
    # The multiple of 32, at least 32, next to `factor` times the root of the width.
    return max(32, 32 * round(factor * dim**0.5 / 32))


def low_rank(dim: int, rank: int, activation: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(dim, rank, bias=False), activation, nn.Linear(rank, dim))
