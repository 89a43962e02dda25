"""Log-linear attention: linear attention with a state for each scale of the past.

Guo, Yang, Goel, Xing, Dao, Kim, "Log-Linear Attention", ICLR 2026, arXiv 2506.04761, its form of
Mamba-2. With tokens counted from 0, a gate alpha_i for each token and head, and the level of a pair
l(i, j), which is the number of binary digits of i xor j (l(i, i) = 0),

    alpha_i = sigmoid(w . x_i + b)^(1 / temperature)
    lambda_i = softplus(L * W x_i), one number for each level
    y_i = sum_{j <= i} lambda_i^(l(i, j)) alpha_(j+1) ... alpha_i (q_i . k_j) / sqrt(e) v_j
    out_i = W_o (swish(W_r x_i) * Norm_h(y_i))

The tokens of a level l > 0 are an aligned block of 2^(l - 1) tokens, or none; levels increase with
the distance. There is a state for each level. After token i, with z zeros at the end of i + 1 in
binary, the states of levels 0 to z are added to the state of level z + 1. Time O(n log n e^2) and
memory O(n e^2 / chunk + n chunk) per head: pairs within a chunk by their weights, others by the
states of halves of blocks of 2, 4, 8 ... chunks. Nothing is divided by a product of gates.

Deviations: gate, norm and output are as in `gated-linear`, with a gate for each head, and in the
paper as in Mamba-2. Pairs further apart than the last level are on it. Positions are ranks among
the real tokens of a sample.
"""

from typing import Annotated

import torch
from jaxtyping import Float, Int
from pydantic import AfterValidator, Field
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Identity, Mask, Positions, Queries, Size, State, Tokens, Traits
from zoo.gated import CausalHeads
from zoo.kernels.chunk_states import pairwise_decay
from zoo.kernels.delta import sum_after
from zoo.kernels.precision import full_precision, without_autocast
from zoo.kernels.real_tokens import count_after, positions_after, zero_padding
from zoo.variants import variants
from zoo.variants.gated_linear import _power_of_two

Gates = Float[Tensor, "b h n 1"]
Scales = Float[Tensor, "b h n l"]


def _equal_scales(layer: "LogLinear", other: object) -> None:
    layer.scale.weight.zero_()
    layer.scale.bias.fill_(1.0).expm1_().log_()


@variants.register("log-linear")
class LogLinear(CausalHeads):
    """Linear attention with decay, weighted by the scale of the distance.

    Axis letters beyond the contract's: `l` levels.

    Args:
        levels: the number of states; 15 tell 16,384 tokens apart.
        temperature: the root taken of the gates; a larger one makes the decay slower.
        chunk: tokens of a chunk, a power of two; the result does not depend on it.
    """

    version = "2.0"
    family = "decay"
    traits = Traits.causal_only(linear=False, stochastic=False, recurrent=True)
    identities = (Identity(other="ssd", where="lambda = 1", prepare=_equal_scales),)

    def __init__(
        self,
        size: Size,
        *,
        levels: Annotated[int, Field(ge=2)] = 15,
        temperature: Annotated[float, Field(gt=0)] = 16.0,
        chunk: Annotated[int, AfterValidator(_power_of_two)] = 64,
    ) -> None:
        super().__init__(size)
        self.levels, self.temperature, self.chunk = levels, temperature, chunk
        self.decay = nn.Linear(size.dim, size.heads)
        self.scale = nn.Linear(size.dim, size.heads * levels)
        self.level_scale = nn.Parameter(torch.ones(size.heads * levels))
        self.make_output()

    def attend(self, x: Tokens) -> Queries:
        inputs = self._project(x, self.short_conv(self.query_key_value(x)))
        # In an exported graph more than any length: then no length is a special case.
        limit = self.size.max_len + 1 if torch.compiler.is_exporting() else x.shape[1]
        with without_autocast(x):
            return weighted_sum(*inputs, self.chunk, limit)

    def merge(self, x: Tokens, heads: Queries) -> Tokens:
        # The norm in fp64: the gradient of a gate sums products of outputs and their gradients over
        # all tokens, which the norm makes 0.
        return super().merge(x, heads.double())

    def start(self, batch: int) -> State:
        # A matrix per head and level, and the number of tokens.
        sums, *rest = super().start(batch)
        return sums[:, :, None].repeat(1, 1, self.levels, 1, 1), *rest

    def extend(self, x: Tokens, real: Mask, state: State) -> tuple[Tokens, State]:
        # Blocks of a level begin at multiples of their size. The power of two is at least n.
        (sums, count, *past), n = state, x.shape[1]
        new = count_after(torch.zeros_like(count), n, real)
        digits = (n - 1).bit_length()
        if digits and bool(((count & ((1 << digits) - 1)).bool() & (new > 0)).any()):
            return self._extend_by_step(x, real, state)
        projected, past = self.short_conv.extend(self.query_key_value(x), tuple(past), real)
        q, k, v, log_alpha, scales = self._project(x, projected, positions_after(count, n))
        k, log_alpha = zero_padding(k, real), zero_padding(log_alpha, real)
        with without_autocast(x):
            if n == 1 and real is None:
                sums = log_alpha.exp()[..., None] * sums
                sums = torch.cat([(k.mT * v)[:, :, None], sums[:, :, 1:]], dim=2)
                heads = (scales.mT[..., None] * (q[:, :, None] @ sums)).sum(2)
            else:
                heads = weighted_sum(q, k, v, log_alpha, scales, self.chunk, n)
                # A token before these is on one level to all of them, and lower levels are empty.
                queries, since = q * log_alpha.cumsum(2).exp(), log_alpha.sum(2, keepdim=True).exp()
                for level in range(min(digits, self.levels - 2) + 1, self.levels):
                    heads = heads + scales[..., level, None] * (queries @ sums[:, :, level])
                sums = since[..., None] * sums + level_states(k, v, log_alpha, new, self.levels)
        return self.merge(x, heads), (raised(sums, count + new), count + new, *past)

    def _project(
        self, x: Tokens, projected: Tensor, positions: Positions | None = None
    ) -> tuple[Queries, Queries, Queries, Gates, Scales]:
        # Queries, already scaled, keys, values, the logarithms of the gates, and lambda.
        # fp32 at least: sums over many tokens, and exponentials of sums.
        with full_precision(projected, self.decay(x), self.scale(x)) as (u, gates, scales):
            q, k, v = u.unflatten(-1, (3, self.size.heads, -1)).permute(2, 0, 3, 1, 4)
            q = self.apply_rotary(q * q.shape[-1] ** -0.5, positions)
            log_alpha = F.logsigmoid(gates).transpose(1, 2)[..., None] / self.temperature
            scales = F.softplus(self.level_scale.to(scales.dtype) * scales)
            scales = scales.unflatten(-1, (self.size.heads, -1)).transpose(1, 2)
            return q, self.apply_rotary(k, positions), v, log_alpha, scales


def weighted_sum(
    q: Queries, k: Queries, v: Queries, log_alpha: Gates, scales: Scales, chunk: int, limit: int
) -> Queries:
    n, last = q.shape[2], scales.shape[-1] - 1
    chunk = min(chunk, 1 << (limit - 1).bit_length())
    # A power of two, so that blocks of chunks have halves.
    chunks = 1 << (-(-limit // chunk) - 1).bit_length()
    padded = (F.pad(x, (0, 0, 0, chunks * chunk - n)) for x in (q, k, v, log_alpha, scales))
    q, k, v, log_alpha, scales = (x.unflatten(2, (chunks, chunk)) for x in padded)
    token = torch.arange(chunk, device=q.device)
    level = level_of(token[:, None], token).clamp_max(last)
    decay = pairwise_decay(log_alpha)
    weights = q @ k.mT * decay * scales.gather(-1, level.expand_as(decay))
    sums = (weights @ v).flatten(2, 3)
    # Of each block: its state at the end, the decay of the whole, and that up to each token.
    states = (k * sum_after(log_alpha).exp()).mT @ v
    since, q, scales = log_alpha.cumsum(-2), q.flatten(2, 3), scales.flatten(2, 3)
    size, level = chunk, chunk.bit_length()
    while states.shape[2] > 1:
        left, right = states.unflatten(2, (-1, 2)).unbind(3)
        before, after = since.unflatten(2, (-1, 2)).unbind(3)
        of_right = (x.unflatten(2, (-1, 2, size))[:, :, :, 1] for x in (q, scales))
        queries, factors = of_right
        far = (queries * after.exp() * factors[..., min(level, last), None]) @ left
        sums = sums + torch.stack([torch.zeros_like(far), far], dim=3).flatten(2, 4)
        states = left * after[..., -1:, :].exp() + right
        since = torch.cat([before, before[..., -1:, :] + after], dim=3)
        size, level = 2 * size, level + 1
    return sums[:, :, :n]


def raised(
    sums: Float[Tensor, "b h l e e"], count: Int[Tensor, " b"]
) -> Float[Tensor, "b h l e e"]:
    # Levels 0 to z are added to level z + 1.
    # The power of two that divides the number of tokens: 2^z.
    divisor = (count & -count)[:, None, None, None, None]
    power = 2 ** torch.arange(sums.shape[2], device=sums.device)[:, None, None]
    last = power == power[-1]
    merged = (power <= divisor) & ~last
    target = (power == 2 * divisor) | (last & (power < 2 * divisor))
    total = torch.where(merged, sums, 0.0).sum(2, keepdim=True)
    return torch.where(merged, 0.0, sums) + torch.where(target, total, 0.0)


def level_states(
    k: Queries, v: Queries, log_alpha: Gates, count: Int[Tensor, " b"], levels: int
) -> Float[Tensor, "b h l e e"]:
    # The first levels; the others have a key of 0.
    token = torch.arange(k.shape[2], device=k.device)
    level = level_of(count[:, None], token).clamp_max(levels - 1)[:, None, :, None]
    k = k * sum_after(log_alpha).exp()
    # Often all tokens are on one level.
    used = range(int(level.min()), int(level.max()) + 1)
    states = [(k.where(level == i, 0.0) if len(used) > 1 else k).mT @ v for i in used]
    zeros = torch.zeros_like(states[0])
    return torch.stack([states[i - used[0]] if i in used else zeros for i in range(levels)], dim=2)


def level_of(i: Int[Tensor, "*n"], j: Int[Tensor, "*m"]) -> Int[Tensor, "*nm"]:
    # The number of binary digits of i xor j, which are less than 2^20.
    powers = 2 ** torch.arange(20, device=i.device)
    return ((i ^ j)[..., None] >= powers).sum(-1)
