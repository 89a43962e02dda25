"""Primal-Attention: attention as asymmetric kernel SVD, computed in the primal.

Chen, Tao, Tonin, Suykens, "Primal-Attention: Self-attention through Asymmetric Kernel SVD in Primal
Representation", NeurIPS 2023, arXiv 2305.19798. Per head, with p the head's width and s the rank:

    phi(u) = u / ||u||                       the cosine feature map
    e(x) = W_e|X^T phi(q(x)),  r(x) = W_r|X^T phi(k(x))    singular directions
    W_e|X = X_s^T W_e,  W_r|X = X_s^T W_r    X_s: a sampled tokens of the layer's input
    o(x) = C [e(x); r(x)] + c                then heads are merged and projected
    J = 1/2 mean ||e * Lambda||^2 + 1/2 mean ||r * Lambda||^2 - Tr(W_e^T W_r)

and the layer adds eta * J^2 to the training loss: J is 0 at a solution. There is no value
projection. Time O(n p s) and memory O(n p) per head.

The same is computed in another order, without the scores e and r of length n. C and the output
projection are multiplied into the per-sample weights, so that tokens pass through one product; the
loss needs the Gram matrices phi^T phi (p x p) only. `zoo.kernels.cosine_map` computes both.

Deviations: sampled tokens are real tokens, never padding, and means run over real tokens. Without
padding both are the published formulas. Positions are exact floors of i (n - 1) / (a - 1), where
the published code truncates a float `linspace`.
"""

from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from zoo.contract import (
    Attended,
    Attention,
    Context,
    Count,
    Mask,
    Positions,
    Size,
    State,
    Token,
    Tokens,
    Traits,
)
from zoo.kernels import cosine_map, eager
from zoo.kernels.precision import full_precision
from zoo.kernels.real_tokens import token_ranks
from zoo.registry import UserError
from zoo.variants import variants

Weights = Float[Tensor, "#b c h p s"]
OutputMap = Float[Tensor, "#b cd d"]
Grams = Float[Tensor, "samples ch p p"]


@variants.register("primal")
class Primal(Attention):
    """Asymmetric kernel SVD of the attention kernel, in the primal, with its loss.

    Axis letters beyond the contract's: `p` head width, `c` the two sides (query, key), `a` sampled
    tokens, `s` rank.
    """

    traits = Traits(
        causal=True, cross=False, linear=True, stochastic=False, recurrent=True, losses=("ksvd",)
    )

    def __init__(
        self,
        size: Size,
        *,
        rank: Count = 30,
        rank_multi: Count = 10,
        eta: Annotated[float, Field(ge=0)] = 0.1,
        projections: Literal["auto", "dependent", "independent"] = "auto",
        trace: Literal["weights", "data"] = "weights",
        ksvd_mean: Literal["batch", "sample"] = "batch",
    ) -> None:
        """Make the parameters; raise `UserError` if a causal layer has dependent projections.

        Args:
            size: see `Size`.
            rank: s, the number of singular directions.
            rank_multi: sampled tokens per direction: a = min(max_len, rank * rank_multi).
            eta: weight of the KSVD loss.
            projections: `dependent` multiplies the sampled tokens into W_e and W_r; `independent`
                uses them as they are, and then does not mix tokens unless causal; `auto` is
                `dependent`, except in the causal form, which is defined for `independent` alone.
            trace: `weights` for Tr(W_e^T W_r), as in all published runs; `data` for
                Tr(W_e|X^T W_r|X).
            ksvd_mean: `batch` averages over batch, heads and tokens, then squares (the published
                LRA and vision runs); `sample` averages over heads and tokens of each sample,
                squares, then averages over samples (the published time-series runs).
        """
        super().__init__(size)
        if size.causal and projections == "dependent":
            raise UserError(
                "primal.projections=dependent uses future tokens; use independent or auto"
            )
        self.dependent = projections == "dependent" or (projections == "auto" and not size.causal)
        self.eta, self.trace, self.ksvd_mean = eta, trace, ksvd_mean
        rows = min(size.max_len, rank * rank_multi) if self.dependent else size.head_dim
        self.query_key = nn.Linear(size.dim, 2 * size.dim)
        self.directions = nn.Parameter(torch.empty(2, size.heads, rows, rank))
        self.scales = nn.Parameter(torch.rand(size.heads, rank))
        self.merge = nn.Linear(2 * rank, size.head_dim)
        self.out = nn.Linear(size.dim, size.dim)
        initialise(self.directions.data)

    def forward(self, x: Tokens, context: Context, mask: Mask | None) -> Attended:
        """See `Attention.forward`; while training, `losses` holds `ksvd`, already times eta."""
        self.require_self(x, context)
        weights = self._weights(x, mask)
        output_map, bias = self._output_map(weights)
        tokens, grams = self._map(x, output_map, mask)
        tokens = tokens + bias
        if not self.training:
            return Attended(tokens)
        return Attended(tokens, {"ksvd": self.eta * self._objective(grams, weights, x, mask)})

    def analytic_flops(self, n: int) -> int:
        """See `Attention.analytic_flops`: two maps of tokens, and the maps that the data weigh."""
        dim, (_, heads, rows, rank) = self.size.dim, self.directions.shape
        weights = 2 * heads * rows * self.size.head_dim * rank if self.dependent else 0
        return 2 * (4 * n * dim**2 + weights + 2 * dim**2 * rank)

    def start(self, batch: int) -> State:
        """See `Attention.start`: the sums of queries and keys, and the number of tokens."""
        return self.zero_state(batch, 2 * self.size.dim), self.zero_state(batch).long()

    def step(self, x: Token, state: State) -> tuple[Token, State]:
        """See `Attention.step`; the weights of a causal layer do not depend on the data."""
        total, count = state
        u = self._projected(x[:, None], count[:, None]).flatten(1)
        total, count = total + u, count + 1
        mean = (total / count[:, None]).to(u.dtype)
        phi = cosine_map.unit(mean.unflatten(-1, (1, 2 * self.size.heads, -1)), None)
        output_map, bias = self._output_map(self.directions[None])
        return (phi.flatten(2) @ output_map)[:, 0] + bias, (total, count)

    def _map(self, x: Tokens, output_map: OutputMap, mask: Mask | None) -> tuple[Tokens, Grams]:
        """Unit features times `output_map`, and the Gram matrices of those features."""
        groups = 2 * self.size.heads
        if not (self.size.causal or self.size.rotary):
            weight, bias = self.query_key.weight, self.query_key.bias
            chunked = eager.on_cpu(x) and x.shape[1] >= cosine_map.CHUNKED_FROM
            compute = cosine_map.chunked if chunked else cosine_map.plain
            return compute(x, weight, bias, output_map, groups, mask, with_gram=self.training)
        u = self._projected(x, None if mask is None else token_ranks(mask))
        if self.size.causal:
            u = _running_mean(u.flatten(2), mask).unflatten(-1, (groups, -1))
        phi = cosine_map.unit(u, mask)
        return phi.flatten(2) @ output_map, cosine_map.gram(phi)

    def _projected(
        self, x: Tokens, positions: Positions | None = None
    ) -> Float[Tensor, "b n ch p"]:
        """Queries and keys, head by head, with rotary positions if `size.rotary`."""
        u = self.query_key(x).unflatten(-1, (2 * self.size.heads, -1))
        return self.apply_rotary(u.transpose(1, 2), positions).transpose(1, 2)

    def _weights(self, x: Tokens, mask: Mask | None) -> Weights:
        """W_e|X and W_r|X, or W_e and W_r themselves where they do not depend on the data."""
        if not self.dependent:
            return self.directions[None]
        positions = sampled_positions(self.directions.shape[-2], x, mask)
        sample = x.gather(1, positions[..., None].expand(-1, -1, x.shape[-1]))
        if mask is not None:
            # A sample without real tokens: what is sampled there is padding.
            sample = sample.masked_fill(~mask.any(1)[:, None, None], 0.0)
        sample = sample.unflatten(-1, (self.size.heads, self.size.head_dim))
        with torch.autocast(x.device.type, enabled=False):
            sample = sample.to(self.directions.dtype)
            return torch.einsum("bahp,chas->bchps", sample, self.directions)

    def _output_map(self, weights: Weights) -> tuple[OutputMap, Float[Tensor, " d"]]:
        """The map from features to output tokens: weights, then C, then the output projection."""
        heads, width = self.size.heads, self.size.head_dim
        out = self.out.weight.unflatten(1, (heads, width))
        merge = self.merge.weight.unflatten(1, (2, -1))
        # One small matrix per sample, by which all tokens are multiplied: fp32 takes little time.
        with torch.autocast(weights.device.type, enabled=False):
            merge_and_project = torch.einsum("dhp,pcs->chsd", out, merge)
            bias = torch.einsum("dhp,p->d", out, self.merge.bias) + self.out.bias
            return (weights @ merge_and_project).flatten(1, 3), bias

    def _objective(
        self, grams: Grams, weights: Weights, x: Tokens, mask: Mask | None
    ) -> Float[Tensor, ""]:
        """J^2, from Gram matrices: mean_n ||e_n * Lambda||^2 = Tr(Lambda W^T G W Lambda) / n."""
        count = grams.new_full((len(x),), x.shape[1]) if mask is None else mask.sum(1)
        with full_precision(grams, weights) as (grams, weights):
            scaled = weights * self.scales[:, None, :]
            energy = (grams.unflatten(1, (2, -1)) @ scaled).mul(scaled).sum((1, 3, 4)) / 2
            source = weights if self.trace == "data" else self.directions[None]
            trace = (source[:, 0] * source[:, 1]).sum((-2, -1))
        if self.ksvd_mean == "batch":
            return (energy.sum(0) / count.sum().clamp_min(1) - trace.mean(0)).mean().square()
        return (energy / count[:, None].clamp_min(1) - trace).mean(1).square().mean()


def initialise(directions: Float[Tensor, "c h a s"]) -> None:
    """Fill the directions of each side with a tensor of Frobenius norm 1 per head."""
    for side in directions:
        # Of (h, a, s) PyTorch makes (h, a s) with orthonormal rows. Orthonormal columns of each
        # head would be sqrt(s) times larger, and their loss would dominate training:
        # `test_primal_initialisation.py`.
        nn.init.orthogonal_(side)


def sampled_positions(count: int, x: Tokens, mask: Mask | None) -> Int[Tensor, "b a"]:
    """The positions of `count` evenly spaced real tokens of each sample, first and last included.

    In a sample with fewer real tokens some are repeated; one with none has the last position.
    """
    batch, n, _ = x.shape
    index = torch.arange(count, device=x.device)
    last = max(count - 1, 1)
    if mask is None:
        return (index * (n - 1) // last).expand(batch, -1)
    real = mask.cumsum(1)
    rank = index * (real[:, -1:] - 1).clamp_min(0) // last
    # The token of rank r is the first at which r + 1 real tokens have been counted.
    return torch.searchsorted(real, rank + 1).clamp_max(n - 1)


def _running_mean(u: Float[Tensor, "b n cd"], mask: Mask | None) -> Float[Tensor, "b n cd"]:
    """Mean over the real tokens so far."""
    # fp32: a running sum overflows half precision within a few thousand tokens.
    with full_precision(u) as (total,):
        if mask is None:
            count = torch.arange(1, u.shape[1] + 1, device=u.device)[None]
        else:
            total = total * mask[..., None]
            count = mask.cumsum(1).clamp_min(1)
        return (total.cumsum(1) / count[..., None]).to(u.dtype)
