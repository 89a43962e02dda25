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
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Context, Mask, Matrix, Natural, Positions, Queries, Size, State, Tokens
from zoo.kernels import key_value_cache
from zoo.kernels.precision import rms_norm
from zoo.projected import ProjectedAttention
from zoo.projection import ShortConvolution
from zoo.registry import UserError
from zoo.traits import Identity, Traits
from zoo.variants import variants
from zoo.variants.softmax import FUSED, allowed_keys, pair_flops, sdpa

Pair = Float[Tensor, "b h _ w"]  # Two queries of each token, or what both maps give, side by side


def _first_map_only(layer: "Differential", other: ProjectedAttention) -> None:
    layer.get_parameter("gate.bias").fill_(-1e4)
    for name, parameter in other.query.named_parameters():
        parameter.copy_(layer.query.get_parameter(name)[: len(parameter)])


@variants.register("differential")
class Differential(ProjectedAttention):
    """A softmax map minus a factor times another one.

    Args:
        version: `v2`, or `v1` for the form of the first paper.
        depth: the index of the layer, from 0, for lambda_0 of `v1`.
    """

    version = "1.0"
    family = "softmax"
    gpu_kernels = FUSED
    caches = True
    undecayed = ("vectors",)
    traits = Traits(causal=True, cross=False, linear=False, stochastic=False, recurrent=False)
    identities = (
        Identity(other="softmax", where="version=v2, a factor of 0", prepare=_first_map_only),
    )

    def __init__(
        self, size: Size, *, version: Literal["v2", "v1"] = "v2", depth: Natural = 0
    ) -> None:
        super(ProjectedAttention, self).__init__(size)  # queries have another width
        width = size.dim * (2 if version == "v2" else 1)
        self.query, self.query_conv = nn.Linear(size.dim, width), ShortConvolution(size, width)
        width = 2 * size.dim
        self.context, self.context_conv = nn.Linear(size.dim, width), ShortConvolution(size, width)
        self.out = nn.Linear(size.dim, size.dim)
        if version == "v2":
            self.gate = nn.Linear(size.dim, size.heads)
            return
        if size.head_dim % 2:
            raise UserError(f"differential.version=v1 halves heads, and dim={size.dim} over "
                            f"heads={size.heads} leaves {size.head_dim}; give an even width, or "
                            "version=v2")  # fmt: skip
        self.gate, self.lambda_0 = None, 0.8 - 0.6 * math.exp(-0.3 * depth)
        # [l1, l2] and [m1, m2].
        self.vectors = nn.Parameter(0.1 * torch.randn(2, 2, size.head_dim // 2))
        self.norm = nn.RMSNorm(size.head_dim, eps=1e-5)

    def attend(self, q: Pair, k: Queries, v: Queries, mask: Mask) -> Pair:
        maps = (sdpa(part, k, v, mask, self.size.causal, 0.0) for part in q.chunk(2, dim=-1))
        return torch.cat([*maps], dim=-1)

    def recur(self, q: Pair, k: Queries, v: Queries, state: State) -> tuple[Pair, State]:
        cache = key_value_cache.append(state, k, v)
        scaled = (part * self.size.head_dim**-0.5 for part in q.chunk(2, dim=-1))
        maps = (key_value_cache.attend(cache, part, self.weigh) for part in scaled)
        return torch.cat([*maps], dim=-1), cache

    attend_after = ProjectedAttention.attend_after  # in parallel, though `recur` is another one

    @torch.no_grad()
    def matrix(self, x: Tokens, context: Context, mask: Mask) -> Matrix:
        # The difference of both maps, without the norm of `v1`.
        self.require_context(x, context)
        q, k, _ = self._project(x, x, mask)
        unit = torch.eye(x.shape[1], dtype=k.dtype, device=k.device).expand(*k.shape[:2], -1, -1)
        allowed = allowed_keys(k, k, mask, self.size.causal)
        first, second = (
            F.scaled_dot_product_attention(part, k, unit, attn_mask=allowed)
            for part in q.chunk(2, dim=-1)
        )
        return first - self._factor(x).to(k.dtype) * second

    def head_flops(self, n: int) -> int:
        # Twice the pairs of softmax attention, and the gate.
        gate = 0 if self.gate is None else 2 * n * self.size.dim
        return gate + 2 * pair_flops(self.size, n)

    def _heads(
        self, query: Tensor, context: Tensor, of_query: Positions | None, of_key: Positions | None
    ) -> tuple[Pair, Queries, Queries]:
        key, value = context.chunk(2, dim=-1)
        v = self._split(value)
        if self.gate is not None:
            first, second, key = (
                self._rotated(part, 1, of_key) for part in (*query.chunk(2, dim=-1), key)
            )
            return torch.cat([first, second], dim=-1), key, v
        q, k = (self._rotated(part, 2, of_key) for part in (query, key))
        half = self.size.head_dim // 2
        # sqrt(2): the logits are divided by the root of the width of half a head.
        first, second = (q * 2**0.5).split(half, dim=-1)
        return torch.cat([F.pad(first, (0, half)), F.pad(second, (half, 0))], dim=-1), k, v

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

    def _merge(self, x: Tokens, heads: Pair) -> Tokens:
        first, second = heads.chunk(2, dim=-1)
        heads = first - self._factor(x).to(first.dtype) * second
        if self.gate is None:
            heads = (1 - self.lambda_0) * rms_norm(self.norm, heads)
        return super()._merge(x, heads)
