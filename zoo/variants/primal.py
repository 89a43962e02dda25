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

`backend=literal` computes that, in the published order and, under autocast, in the published
precision. The other backends compute the same without the scores e and r of length n. C and the
output projection are multiplied into the per-sample weights, so that tokens pass through one
product; the loss needs the Gram matrices phi^T phi (p x p) only. `zoo.kernels.cosine_map` computes
both.

Deviations: sampled tokens are real tokens, never padding, and means run over real tokens. Without
padding both are the published formulas. Positions are exact floors of i (n - 1) / (a - 1), where
the published code truncates a float `linspace`.
"""

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import (
    Attended,
    Attention,
    Context,
    Count,
    Mask,
    Matrix,
    Positions,
    Size,
    State,
    Token,
    Tokens,
    Traits,
    Unsupported,
)
from zoo.kernels import cosine_map, eager, sampled_tokens
from zoo.kernels.precision import TINY, full_precision
from zoo.kernels.real_tokens import running_mean, token_ranks
from zoo.registry import UserError
from zoo.variants import variants

Weights = Float[Tensor, "#b c h p s"]
OutputMap = Float[Tensor, "#b cd d"]
Bias = Float[Tensor, " d"]
Grams = Float[Tensor, "samples ch p p"]
Energy = Float[Tensor, "samples h"]
"""Half the sum over tokens of ||e * Lambda||^2 + ||r * Lambda||^2; of no sample in evaluation."""

NO_KERNEL = "computes neither the causal form nor rotary position embeddings"


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
        backend: Literal["auto", "folded", "triton", "literal"] = "auto",
    ) -> None:
        """Make the parameters.

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
            backend: `folded` for Gram matrices instead of scores, by PyTorch; `triton` for the same
                in kernels for CUDA, neither causal nor rotary; `literal` for the published order of
                computation; `auto` for triton where a trial of it succeeds, and folded elsewhere.

        Raises:
            UserError: a causal layer has dependent projections.
            Unsupported: `backend` is triton, and triton is missing or has no kernel for the form.
        """
        super().__init__(size)
        if size.causal and projections == "dependent":
            raise UserError(
                "primal.projections=dependent uses future tokens; use independent or auto"
            )
        self.dependent = projections == "dependent" or (projections == "auto" and not size.causal)
        self.eta, self.trace, self.ksvd_mean, self.backend = eta, trace, ksvd_mean, backend
        if backend == "triton":
            if size.causal or size.rotary:
                raise Unsupported(f"primal.backend=triton {NO_KERNEL}; give backend=auto")
            if reason := cosine_map.missing_for_triton():
                raise Unsupported(f"primal.backend=triton cannot run: {reason}; give backend=auto")
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
        backend = self.backend_for(x)
        take = sampled_tokens.plain if backend == "literal" else sampled_tokens.in_place
        x, weights = self._weights(x, mask, take)
        if backend == "literal":
            tokens, energy = self._literal(x, weights, mask)
        else:
            tokens, energy = self._folded(x, weights, mask, backend == "triton")
        if not self.training:
            return Attended(tokens)
        return Attended(tokens, {"ksvd": self.eta * self._objective(energy, weights, x, mask)})

    def backend_for(self, x: Tokens) -> str:
        """See `Attention.backend_for`.

        Raises:
            Unsupported: `backend` is triton, and a trial of it fails.
        """
        if self.backend in ("folded", "literal"):
            return self.backend
        if self.backend == "auto" and (
            # The compiler fuses the folded form itself, and cannot trace the trial.
            torch.compiler.is_compiling() or not x.is_cuda or self.size.causal or self.size.rotary
        ):
            return "folded"
        if torch.compiler.is_compiling():
            return "triton"
        reason = cosine_map.triton_failure(x, 2 * self.size.heads, self.size.head_dim)
        if reason and self.backend == "triton":
            raise Unsupported(f"primal.backend=triton cannot run: {reason}; give backend=auto")
        return "folded" if reason else "triton"

    def analytic_flops(self, n: int) -> int:
        """See `Attention.analytic_flops`: two maps of tokens, and the maps that the data weigh."""
        dim, (_, heads, rows, rank) = self.size.dim, self.directions.shape
        weights = 2 * heads * rows * self.size.head_dim * rank if self.dependent else 0
        return 2 * (4 * n * dim**2 + weights + 2 * dim**2 * rank)

    @torch.no_grad()
    def matrix(self, x: Tokens, context: Context, mask: Mask | None) -> Matrix:
        """See `Attention.matrix`: the kernel Phi_q Phi_k^T, which is decomposed."""
        u = self._queries_and_keys(x, mask)
        with full_precision(u) as (u,):
            q, k = cosine_map.unit(u, mask).transpose(1, 2).chunk(2, dim=1)
        return q @ k.mT

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
        return cosine_map.affine(phi, output_map, bias)[:, 0], (total, count)

    def _literal(self, x: Tokens, weights: Weights, mask: Mask | None) -> tuple[Tokens, Energy]:
        """The layer's output, and the energy, from the scores e and r, in fp32 at least."""
        u, merge = self._queries_and_keys(x, mask), self.merge
        with full_precision(u, weights, merge.weight, merge.bias) as (u, weights, weight, bias):
            phi = F.normalize(u, dim=-1, eps=TINY)
            if mask is not None:
                phi = phi * mask[:, :, None, None]
            sides = zip(phi.chunk(2, dim=2), weights.unbind(1), strict=True)
            e, r = (side.transpose(1, 2) @ directions for side, directions in sides)
            merged = F.linear(torch.cat([e, r], dim=-1), weight, bias)
            samples, scales = len(x) if self.training else 0, self.scales[:, None, :]
            squares = [(side[:samples] * scales).square().sum((-2, -1)) for side in (e, r)]
        return self.out(merged.transpose(1, 2).flatten(2)), (squares[0] + squares[1]) / 2

    def _folded(
        self, x: Tokens, weights: Weights, mask: Mask | None, fused: bool
    ) -> tuple[Tokens, Energy]:
        """The layer's output, and the energy, from Gram matrices; see `_map`."""
        tokens, grams = self._map(x, *self._output_map(weights), mask, fused)
        with full_precision(grams, weights) as (grams, weights):
            scaled = weights[: len(grams)] * self.scales[:, None, :]
            # sum_n ||e_n * Lambda||^2 = Tr(Lambda W^T G W Lambda)
            energy = (grams.unflatten(1, (2, -1)) @ scaled).mul(scaled).sum((1, 3, 4)) / 2
        return tokens, energy

    def _map(
        self, x: Tokens, output_map: OutputMap, bias: Bias, mask: Mask | None, fused: bool
    ) -> tuple[Tokens, Grams]:
        """Unit features times `output_map`, and, while training, their Gram matrices."""
        if self.size.causal or self.size.rotary:
            phi = cosine_map.unit(self._queries_and_keys(x, mask), mask)
            grams = cosine_map.gram(phi if self.training else phi[:0])
            return cosine_map.affine(phi, output_map, bias), grams
        if fused:
            compute = cosine_map.fused
        elif eager.on_cpu(x) and x.shape[1] >= cosine_map.CHUNKED_FROM:
            compute = cosine_map.chunked
        else:
            compute = cosine_map.plain
        given = (x, self.query_key.weight, self.query_key.bias, output_map, bias)
        return compute(*given, 2 * self.size.heads, mask, with_gram=self.training)

    def _queries_and_keys(self, x: Tokens, mask: Mask | None) -> Float[Tensor, "b n ch p"]:
        """Queries and keys: of each token, or the means so far if causal."""
        u = self._projected(x, None if mask is None else token_ranks(mask))
        return running_mean(u.flatten(2), mask).view_as(u) if self.size.causal else u

    def _projected(
        self, x: Tokens, positions: Positions | None = None
    ) -> Float[Tensor, "b n ch p"]:
        """Queries and keys, head by head, with rotary positions if `size.rotary`."""
        u = self.query_key(x).unflatten(-1, (2 * self.size.heads, -1))
        return self.apply_rotary(u.transpose(1, 2), positions).transpose(1, 2)

    def _weights(
        self, x: Tokens, mask: Mask | None, take: Callable[..., tuple[Tensor, Tensor]]
    ) -> tuple[Tokens, Weights]:
        """x, and W_e|X and W_r|X, or W_e and W_r where they do not depend on the data.

        `take` is a function of `zoo.kernels.sampled_tokens`.
        """
        if not self.dependent:
            return x, self.directions[None]
        positions = sampled_tokens.sampled_positions(self.directions.shape[-2], x, mask)
        x, sample = take(x, positions)
        if mask is not None:
            # A sample without real tokens: what is sampled there is padding.
            sample = sample.masked_fill(~mask.any(1)[:, None, None], 0.0)
        sample = sample.unflatten(-1, (self.size.heads, self.size.head_dim))
        with torch.autocast(x.device.type, enabled=False):
            sample = sample.to(self.directions.dtype)
            return x, torch.einsum("bahp,chas->bchps", sample, self.directions)

    def _output_map(self, weights: Weights) -> tuple[OutputMap, Bias]:
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
        self, energy: Energy, weights: Weights, x: Tokens, mask: Mask | None
    ) -> Float[Tensor, ""]:
        """J^2, from the energy, which is a sum over tokens."""
        count = energy.new_full((len(x),), x.shape[1]) if mask is None else mask.sum(1)
        with full_precision(energy, weights) as (energy, weights):
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
