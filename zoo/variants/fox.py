"""FoX, the Forgetting Transformer: softmax attention with a forget gate.

Lin, Nikishin, He, Courville, "Forgetting Transformer: Softmax Attention with a Forget Gate", ICLR
2025, arXiv 2503.02130. With a gate for each token and head,

    f_i = sigmoid(w . x_i + b)          c_i = log f_1 + ... + log f_i
    out_i = sum_{j <= i} softmax_j(q_i . k_j / sqrt(e) + c_i - c_j) v_j

The logits are products of queries [c, 1, r, 1, q / sqrt(e)] and keys [1, -c, 1, -r, k]: the fused
kernels of `scaled_dot_product_attention` compute them at width e + 4, in time O(n^2 e) and memory
O(n e). r is the rest of the fp64 sum c after its rounding: the last digit of a sum of thousands of
tokens is 1e-4. Products that are added up channel by channel lose nothing else, since c_i - c_j is
exact where it is small.

b starts at 0, as in the published code: f is 1/2, and a fresh layer is local. A step stores
c_i - c_j.

Deviations: the layer is FoX (LLaMA); FoX (Pro) adds shifts of keys and values, and norms of
queries, keys and the output. Projections have a bias. Padded tokens have f = 1 and no weight.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Context, Keys, Mask, OneToken, Queries, Size, State, Tokens
from zoo.kernels import key_value_cache
from zoo.kernels.delta import sum_after
from zoo.kernels.precision import full_precision
from zoo.kernels.real_tokens import last_tokens, zero_padding
from zoo.projected import ProjectedAttention
from zoo.traits import Identity, Traits
from zoo.variants import variants
from zoo.variants.softmax import FUSED

# Queries or keys with the channels of the gate, or values and outputs with as many zeros.
Wide = Float[Tensor, "b h n w"]

CHANNELS = 4  # The channels of the gate
NEVER = -1e30  # The logit of a padded key: with any other key its weight is 0


@variants.register("fox")
class ForgettingAttention(ProjectedAttention):
    """Softmax attention to past tokens, less the more is forgotten between them and the query."""

    version = "1.1"
    family = "softmax"
    traits = Traits.causal_only(linear=False, stochastic=False, recurrent=False)
    identities = (
        Identity(other="softmax", where="f = 1",
                 prepare=lambda layer, other: layer.forget.bias.fill_(1e4)),
    )  # fmt: skip
    caches = True
    drops_weights = True
    gpu_kernels = FUSED
    # fp32 at least: half precision has no digits for differences of long sums.
    upcast = True

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self.forget = nn.Linear(size.dim, size.heads)
        nn.init.zeros_(self.forget.bias)

    def attend(self, q: Wide, k: Wide, v: Wide, mask: Mask) -> Wide:
        # Fused kernels need values as wide as keys: values have zeros for the channels of the gate.
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=1.0, dropout_p=self.dropout
        )

    def head_flops(self, n: int) -> int:
        # Scores and sums of the pairs of tokens.
        return 2 * (n * (n + 1) // 2) * 2 * (self.size.head_dim + CHANNELS)

    def begin(self, batch: int) -> State:
        # An empty cache, and c_i - c_j of no token.
        return *super().begin(batch), self.zero_state(batch, self.size.heads, 1, 0)

    def extend(self, x: Tokens, real: Mask, state: State) -> tuple[Tokens, State]:
        return super().extend(x, real, (*state, zero_padding(self._log_forget(x), real)))

    def recur(self, q: OneToken, k: OneToken, v: OneToken, state: State) -> tuple[OneToken, State]:
        # The state has log f of this token, too.
        *cache, decay, log_forget = state
        decay = F.pad(decay + log_forget, (0, 1))
        cache = key_value_cache.append(tuple(cache), k, v)

        def weigh(logits: Tensor, real: Tensor) -> Tensor:
            return key_value_cache.softmax(logits + decay, real).to(cache[0].dtype)

        heads = key_value_cache.attend(cache, q * self.size.head_dim**-0.5, weigh)
        return heads, (*cache, decay)

    def attend_after(
        self, q: Queries, k: Keys, v: Keys, real: Mask, state: State
    ) -> tuple[Queries, State]:
        *cache, decay, log_forget = state
        keys, values, seen, cache = key_value_cache.extend(tuple(cache), k, v, real)
        q, k = self._with_gate(q, k, log_forget, real)
        # c is counted from the last cached token: of this one it is 0.
        before = decay.mT.masked_fill(~seen[:, None, :, None], NEVER)
        ones = torch.ones_like(before)
        past = torch.cat([ones, before, ones, torch.zeros_like(before), keys.to(k.dtype)], dim=-1)

        v, values = (F.pad(x, (0, CHANNELS)) for x in (v, values))
        heads = key_value_cache.attend_after(self.attend, q, k, v, real, past, values, seen)
        ends = torch.cat([decay + log_forget.sum(2, keepdim=True), sum_after(log_forget).mT], -1)
        return heads[..., : self.size.head_dim], (
            *cache,
            last_tokens(ends.mT, ends.shape[-1], real).mT,
        )

    def _project(self, x: Tokens, context: Context, mask: Mask) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super()._project(x, context, mask)
        q, k = self._with_gate(q, k, zero_padding(self._log_forget(x), mask), mask)
        return q, k, F.pad(v, (0, CHANNELS))

    def _merge(self, x: Tokens, heads: Wide) -> Tokens:
        return super()._merge(x, heads[..., : self.size.head_dim])

    def _with_gate(self, q: Queries, k: Keys, log_forget: Tensor, mask: Mask) -> tuple[Wide, Wide]:
        exact = log_forget.double().cumsum(-2)
        c = exact.to(log_forget.dtype)
        rest = (exact - c).detach().to(c.dtype)
        ones, past = torch.ones_like(c), -c
        if mask is not None:
            past = past.masked_fill(~mask[:, None, :, None], NEVER)
        q = torch.cat([c, ones, rest, ones, q * q.shape[-1] ** -0.5], dim=-1)
        return q, torch.cat([ones, past, ones, -rest, k], dim=-1)

    def _log_forget(self, x: Tokens) -> Float[Tensor, "b h n 1"]:
        with full_precision(self.forget(x)) as (logits,):
            return F.logsigmoid(logits).transpose(1, 2)[..., None]
