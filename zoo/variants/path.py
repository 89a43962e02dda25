"""PaTH: softmax attention with positions from data-dependent reflections.

Yang, Shen, Wen, Tan, Mishra, Ren, Panda, Kim, "PaTH Attention: Position Encoding via Accumulating
Householder Transformations", 2025, arXiv 2505.16381. With, per head,

    w_i = unit(silu(conv(W_2 W_1 x_i)))         b_i = 2 sigmoid(u . x_i + c)
    H_i = I - b_i w_i w_i^T                     a_ij = k_j^T H_(j+1) ... H_i q_i / sqrt(e)
    out_i = sum_{j <= i} softmax_j(a_ij) v_j

An eigenvalue 1 - b_i in (-1, 1) mirrors keys for b_i > 1: one layer can compute a parity. With
`forget` (PaTH-FoX) log f of each token between key and query is added to the logit, as in `fox`:
f_i = sigmoid(w_f . x_i + c_f). Time O(n^2 e), memory O(n^2); for both see `zoo.kernels.path`. A
step multiplies all cached keys by H; the cache is in fp32 at least.

c and c_f start at 0: b is near 1, f near 1/2. unit(w) = w / sqrt(|w|^2 + 1e-6).

Deviations: log f is added to the scaled logit, as in the paper of FoX; the library of the authors
(fla) scales it, too. Taps start as in `zoo.projection`. Projections of queries, keys and values
have a bias. Keys are as many as queries, without a norm. The reflections are the positions of the
paper; `Size.rotary` rotates queries and keys before them, and `Size.short_conv` convolves queries,
keys and values. Padded tokens have b = 0, f = 1 and no weight.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Context, Count, Keys, Mask, Natural, Queries, Size, State, Tokens
from zoo.delta_attention import sigmoid_gate, unit
from zoo.kernels import key_value_cache, path
from zoo.kernels.delta import sum_after
from zoo.kernels.precision import full_precision, without_autocast
from zoo.kernels.real_tokens import last_tokens, zero_padding
from zoo.projected import ProjectedAttention
from zoo.projection import ShortConvolution
from zoo.recurrent import in_heads
from zoo.traits import Identity, Traits
from zoo.variants import variants

Gates = Float[Tensor, "b h n g"]  # Direction w, strength b and log f of each token, e + 2 channels
Wide = Float[Tensor, "b h n w"]  # Queries or keys with the channels of `Gates`


@variants.register("path")
class PathAttention(ProjectedAttention):
    """Softmax attention to past tokens, with reflections between key and query.

    Args:
        forget: whether there is a forget gate for each token and head.
        rank: rank of the map from a token to its directions; 0 for a full matrix.
        taps: of the convolution of the directions; 0 for none, and no SiLU.
        chunk: tokens of a block; the result does not depend on it.
    """

    version = "1.0"
    family = "softmax"
    traits = Traits.causal_only(linear=False, stochastic=False, recurrent=False)
    identities = (
        Identity(other="softmax", where="b = 0",
                 prepare=lambda layer, other: layer.strength.bias.fill_(-1e4)),
        Identity(other="fox", where="b = 0", options={"forget": True},
                 prepare=lambda layer, other: layer.strength.bias.fill_(-1e4)),
    )  # fmt: skip
    caches = True
    drops_weights = True
    upcast = True

    def __init__(
        self, size: Size, *, forget: bool = False, rank: Natural = 32, taps: Natural = 3,
        chunk: Count = 64,
    ) -> None:  # fmt: skip
        super().__init__(size)
        self.chunk = chunk
        self.down = nn.Linear(size.dim, rank, bias=False) if rank else nn.Identity()
        inner = replace(size, dim=rank or size.dim, heads=1, short_conv=taps)
        self.direction = nn.Linear(inner.dim, size.dim, bias=False)
        self.direction_conv = ShortConvolution(inner, size.dim)
        self.strength = nn.Linear(size.dim, size.heads)
        nn.init.zeros_(self.strength.bias)
        self.forget = None
        if forget:
            self.forget = nn.Linear(size.dim, size.heads)
            nn.init.zeros_(self.forget.bias)

    def attend(self, q: Wide, k: Wide, v: Keys, mask: Mask) -> Queries:
        # Keys end in the channels of `Gates`, queries in zeros.
        width = self.size.head_dim
        q, k, gates = q[..., :width], k[..., :width], k[..., width:]
        w, strength, log_forget = self._split_gates(gates)
        log_forget = log_forget if self.forget else None
        return path.attend(
            self._scaled(q), k, v, w, strength, log_forget, mask,
            chunk=self.chunk, dropout=self.dropout,
        )[0]  # fmt: skip

    def begin(self, batch: int) -> State:
        # A cache, sums of log f, and what w is convolved from.
        heads, width = self.size.heads, self.size.head_dim
        empty = self.zero_state(batch, heads, 0, width)
        with without_autocast(empty):  # what turns keys needs fp32
            cache = key_value_cache.start(empty)
        bias = self.zero_state(batch, heads, 0, 1)
        return *cache, bias, *self.zero_past(batch, self.direction_conv)

    def extend(self, x: Tokens, real: Mask, state: State) -> tuple[Tokens, State]:
        return super().extend(x, real, self._with_gates(x, real, state))

    def recur(self, q: Queries, k: Keys, v: Keys, state: State) -> tuple[Queries, State]:
        # The state has the gates of this token, too.
        *cache, bias = state[:6]
        w, strength, log_forget = self._split_gates(state[-1])
        cache[0], cache[2] = (path.turn(keys, w, strength) for keys in cache[:3:2])
        cache = key_value_cache.append(tuple(cache), k, v)
        bias = F.pad(bias + log_forget, (0, 0, 0, 1))

        def weigh(logits: Tensor, real: Tensor) -> Tensor:
            return key_value_cache.softmax(logits + bias.mT, real)

        heads = key_value_cache.attend(cache, self._scaled(q), weigh)
        return heads, (*cache, bias, *state[6:-1])

    def attend_after(
        self, q: Queries, k: Keys, v: Keys, real: Mask, state: State
    ) -> tuple[Queries, State]:
        *cache, bias = state[:6]
        w, strength, log_forget = self._split_gates(state[-1])
        keys, values, seen, cache = key_value_cache.extend(tuple(cache), k, v, real)
        masked = bias.masked_fill(~seen[:, None, :, None], path.NEVER)
        heads, keys = path.attend(
            self._scaled(q), k, v, w, strength, log_forget, real,
            path.Past(keys, values, masked), chunk=self.chunk,
        )  # fmt: skip
        bias = torch.cat([bias + log_forget.sum(2, keepdim=True), sum_after(log_forget)], dim=2)
        keys, bias = (last_tokens(part, part.shape[2], real) for part in (keys, bias))
        return heads, (keys, *cache[1:], bias, *state[6:-1])

    def _project(self, x: Tokens, context: Context, mask: Mask) -> tuple[Wide, Wide, Keys]:
        q, k, v = super()._project(x, context, mask)
        direction = self.direction_conv(self.direction(self.down(x)), mask)
        gates = self._gates(x, direction, mask)
        k = torch.cat([k.to(gates.dtype), gates], dim=-1)
        return F.pad(q.to(gates.dtype), (0, gates.shape[-1])), k, v

    def _with_gates(self, x: Tokens, real: Mask, state: State) -> State:
        first = len(state) - len(self.direction_conv.past_shapes())
        projected = self.direction(self.down(x))
        direction, past = self.direction_conv.extend(projected, state[first:], real)
        return *state[:first], *past, self._gates(x, direction, real)

    def _gates(self, x: Tokens, direction: Tokens, mask: Mask) -> Gates:
        # In fp32 at least.
        strength = sigmoid_gate(self.strength(x), self.size.heads, doubled=True)
        forget = torch.zeros_like(strength)
        if self.forget:
            with full_precision(self.forget(x)) as (logits,):
                forget = F.logsigmoid(in_heads(logits, self.size.heads))
        with full_precision(direction) as (direction,):
            w = unit(in_heads(direction, self.size.heads))
        return torch.cat([w, zero_padding(torch.cat([strength, forget], -1), mask)], dim=-1)

    def _split_gates(self, gates: Gates) -> tuple[Tensor, ...]:
        return gates.split([self.size.head_dim, 1, 1], dim=-1)

    def _scaled(self, q: Queries) -> Queries:
        return q * self.size.head_dim**-0.5
