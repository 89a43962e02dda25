"""Differential attention: the difference of two softmax maps.

Ye et al., "Differential Transformer", ICLR 2025, arXiv 2410.05258, and its second version (Ye,
Dong, Sun, Wei, "Differential Transformer V2", 2026, huggingface.co/blog/microsoft/diff-attn-v2).
Per head, with two queries of each token,

    version 2:  out_i = softmax(q1 k^T / sqrt(e))_i v - sigmoid(W x_i) softmax(q2 k^T / sqrt(e))_i v
    version 1:  y_i = softmax(q1 k1^T / sqrt(e/2))_i v - lambda softmax(q2 k2^T / sqrt(e/2))_i v
                out_i = (1 - lambda_0) RMSNorm(y_i)
                lambda = exp(l1 . m1) - exp(l2 . m2) + lambda_0
                lambda_0 = 0.8 - 0.6 exp(-0.3 depth)

Version 2 has twice the queries, and no norm. In version 1, q1, q2, k1 and k2 are halves of a query
and a key: q1 k1^T is computed as [q1, 0] k^T. l1, m1, l2 and m2 are vectors of e/2 numbers, shared
by all heads. Two maps: time O(n m e), memory O(n + m) in the fused kernels.

Deviations: projections have a bias. A layer does not know its index: `depth` is an option. A query
without real keys returns zero. In version 1 heads are as many as in softmax attention; the paper
halves their number.
"""

import math
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import (
    Attended,
    Attention,
    Context,
    Identity,
    Mask,
    Matrix,
    Natural,
    Positions,
    Queries,
    Size,
    State,
    Tokens,
    Traits,
)
from zoo.kernels import key_value_cache
from zoo.kernels.precision import rms_norm
from zoo.kernels.real_tokens import count_after, positions_after, token_ranks
from zoo.projected import ProjectedAttention
from zoo.projection import ShortConvolution
from zoo.registry import UserError
from zoo.variants import variants
from zoo.variants.softmax import FUSED, allowed_keys, sdpa


def _first_map_only(layer: "Differential", other: ProjectedAttention) -> None:
    layer.get_parameter("gate.bias").fill_(-1e4)
    for name, parameter in other.query.named_parameters():
        parameter.copy_(layer.query.get_parameter(name)[: len(parameter)])


@variants.register("differential")
class Differential(Attention):
    """A softmax map minus a factor times another one."""

    version = "1.0"
    family = "softmax"
    gpu_kernels = FUSED
    undecayed = ("vectors",)
    traits = Traits(causal=True, cross=False, linear=False, stochastic=False, recurrent=False)
    identities = (
        Identity(other="softmax", where="version=v2, a factor of 0", prepare=_first_map_only),
    )

    def __init__(
        self, size: Size, *, version: Literal["v2", "v1"] = "v2", depth: Natural = 0
    ) -> None:
        """Make the parameters.

        Args:
            size: see `Size`.
            version: `v2`, or `v1` for the form of the first paper.
            depth: the index of the layer, from 0, for lambda_0 of `v1`.
        """
        super().__init__(size)
        width = size.dim * (2 if version == "v2" else 1)
        self.query = nn.Linear(size.dim, width)
        self.query_conv = ShortConvolution(size, width)
        self.context = nn.Linear(size.dim, 2 * size.dim)
        self.context_conv = ShortConvolution(size, 2 * size.dim)
        self.out = nn.Linear(size.dim, size.dim)
        if version == "v2":
            self.gate = nn.Linear(size.dim, size.heads)
            return
        if size.head_dim % 2:
            raise UserError(
                f"differential.version=v1 halves heads, and dim={size.dim} over heads={size.heads} "
                f"leaves {size.head_dim}; give an even width, or version=v2"
            )
        self.gate, self.lambda_0 = None, 0.8 - 0.6 * math.exp(-0.3 * depth)
        # [l1, l2] and [m1, m2].
        self.vectors = nn.Parameter(0.1 * torch.randn(2, 2, size.head_dim // 2))
        self.norm = nn.RMSNorm(size.head_dim, eps=1e-5)

    @classmethod
    def decodes(cls) -> bool:
        # With a cache of all keys and values.
        return True

    def forward(
        self, x: Tokens, context: Context | None = None, mask: Mask | None = None
    ) -> Attended:
        self.require_self(x, context)
        queries, k, v = self._project(x, mask)
        first, second = (sdpa(q, k, v, mask, self.size.causal, 0.0) for q in queries)
        return Attended(self._merge(x, first, second))

    @torch.no_grad()
    def matrix(self, x: Tokens, context: Context, mask: Mask | None) -> Matrix:
        # The difference of both maps, without the norm of `v1`.
        self.require_self(x, context)
        queries, k, _ = self._project(x, mask)
        unit = torch.eye(x.shape[1], dtype=k.dtype, device=k.device).expand(*k.shape[:2], -1, -1)
        first, second = (
            F.scaled_dot_product_attention(
                q, k, unit, attn_mask=allowed_keys(q, k, mask, self.size.causal)
            )
            for q in queries
        )
        return first - self._factor(x).to(k.dtype) * second

    def analytic_flops(self, n: int) -> int:
        # Projections, and twice the pairs of softmax attention.
        dim, pairs = self.size.dim, n * (n + 1) // 2 if self.size.causal else n * n
        extra = 0 if self.gate is None else n * dim * (dim + self.size.heads)
        return 2 * (4 * n * dim**2 + extra + 2 * pairs * 2 * dim)

    def start(self, batch: int) -> State:
        # The number of tokens, projections before, and an empty cache.
        empty = self.zero_state(batch, self.size.heads, 0, self.size.head_dim)
        cache = key_value_cache.start(empty.to(self.parameter_dtype))
        past = self.zero_past(batch, self.query_conv, self.context_conv)
        return self.zero_state(batch).long(), *past, *cache

    def extend(self, x: Tokens, real: Mask | None, state: State) -> tuple[Tokens, State]:
        (count, *rest), n = state, x.shape[1]
        past, cache = tuple(rest[:-5]), tuple(rest[-5:])
        of_query, of_context = past[: len(past) // 2], past[len(past) // 2 :]
        query, past_query = self.query_conv.extend(self.query(x), of_query, real)
        context, past_context = self.context_conv.extend(self.context(x), of_context, real)
        queries, k, v = self._heads(query, context, positions_after(count, n))
        if n == 1 and real is None:
            cache, weigh = key_value_cache.append(cache, k, v), key_value_cache.softmax
            scale = self.size.head_dim**-0.5
            maps = [key_value_cache.attend(cache, q * scale, weigh) for q in queries]
        else:
            k, v = (part.to(cache[0].dtype) for part in (k, v))
            *before, cache = key_value_cache.extend(cache, k, v, real)
            attend = partial(sdpa, causal=True, dropout=0.0)
            heads = (k, v, real, *before)
            maps = [key_value_cache.attend_after(attend, q.to(k.dtype), *heads) for q in queries]
        tokens = self._merge(x, *maps)
        return tokens, (count_after(count, n, real), *past_query, *past_context, *cache)

    def _project(self, x: Tokens, mask: Mask | None) -> tuple[list[Queries], Queries, Queries]:
        positions = None if mask is None else token_ranks(mask)
        query = self.query_conv(self.query(x), mask)
        return self._heads(query, self.context_conv(self.context(x), mask), positions)

    def _heads(
        self, query: Tensor, context: Tensor, positions: Positions | None
    ) -> tuple[list[Queries], Queries, Queries]:
        key, value = context.chunk(2, dim=-1)
        v = value.unflatten(-1, (self.size.heads, -1)).transpose(1, 2)
        if self.gate is not None:
            first, second, key = (
                self._rotated(part, 1, positions) for part in (*query.chunk(2, dim=-1), key)
            )
            return [first, second], key, v
        q, k = (self._rotated(part, 2, positions) for part in (query, key))
        half = self.size.head_dim // 2
        # sqrt(2): the logits are divided by the root of the width of half a head.
        first, second = (q * 2**0.5).split(half, dim=-1)
        return [F.pad(first, (0, half)), F.pad(second, (half, 0))], k, v

    def _rotated(self, x: Tensor, pieces: int, positions: Positions | None) -> Queries:
        split = x.unflatten(-1, (self.size.heads * pieces, -1)).transpose(1, 2)
        rotated = self.apply_rotary(split, positions).unflatten(1, (-1, pieces))
        return rotated.transpose(2, 3).flatten(-2)

    def _factor(self, x: Tokens) -> Float[Tensor, "#b #h #n 1"]:
        # Of each token and head, or one for all.
        if self.gate is not None:
            return self.gate(x).sigmoid().transpose(1, 2)[..., None]
        first, second = self.vectors.prod(0).sum(-1).exp().unbind()
        return (first - second + self.lambda_0).view(1, 1, 1, 1)

    def _merge(self, x: Tokens, first: Queries, second: Queries) -> Tokens:
        heads = first - self._factor(x).to(first.dtype) * second
        if self.gate is None:
            heads = (1 - self.lambda_0) * rms_norm(self.norm, heads)
        return self.out(heads.transpose(1, 2).flatten(-2))
