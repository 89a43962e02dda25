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

Published causal form: q and k are replaced by their means over the tokens so far, and W_e and W_r
are used as they are (`projections=independent`).

Forms that were not published:

* `feature_map`: another phi; f features in place of p. Where f differs from p, X_s has the features
  of the sampled tokens.
* `sides`: e or r alone in the output. J keeps both sides. Singular vectors are defined in pairs,
  K v = s u and K^T u = s v: without r nothing in J relates e to K, and its minimum is e = 0.
* `lambda_form`: Lambda^2 above is the positive Lambda of the paper; others are positive by
  construction.

`zoo.variants.primal_moments` has projections made of all tokens, also in the causal form.

Cross-attention, o(x) = C_e e(x) + c, was not published either: `zoo.ksvd_cross` derives it.

Deviations: sampled tokens are real tokens, never padding, and means run over real tokens. Without
padding both are the published formulas. Positions are exact floors of i (n - 1) / (a - 1), where
the published code truncates a float `linspace`.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from zoo import ksvd
from zoo.contract import (
    Attended,
    Context,
    Mask,
    Matrix,
    State,
    Token,
    Tokens,
    Traits,
    Unsupported,
)
from zoo.kernels import cosine_map, moments, sampled_tokens
from zoo.kernels.precision import full_precision
from zoo.ksvd import Energy, Grams, Weights
from zoo.ksvd_attention import Bias, Features, OutputMap
from zoo.ksvd_cross import KsvdCrossAttention
from zoo.variants import variants

Scores = Float[Tensor, "b h n s"]


@variants.register("primal")
class Primal(KsvdCrossAttention):
    """Asymmetric kernel SVD of the attention kernel, in the primal, with its loss."""

    traits = Traits(
        causal=True, cross=True, linear=True, stochastic=False, recurrent=True, losses=("ksvd",)
    )
    family = "primal"

    def forward(
        self, x: Tokens, context: Context | None = None, mask: Mask | None = None
    ) -> Attended:
        """See `Attention.forward`; while training, `losses` holds `ksvd`, already times eta."""
        if context is not None and context is not x:
            return self._cross(x, context, mask)
        backend = self.backend_for(x)
        if self.size.causal and self.projections == "moments":
            return self._causal_moments(x, mask, plain=backend == "literal")
        take = sampled_tokens.plain if backend == "literal" else sampled_tokens.in_place
        phi = self._features(x, mask) if self.by_moments and backend == "folded" else None
        x, weights = self._weights(x, mask, take, phi=phi)
        if backend == "literal":
            tokens, energy = self._literal(x, weights, mask)
        else:
            tokens, energy = self._folded(x, weights, mask, backend == "triton", phi)
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
            torch.compiler.is_compiling() or not x.is_cuda or not self.has_kernel
        ):
            return "folded"
        if torch.compiler.is_compiling():
            return "triton"
        reason = cosine_map.triton_failure(x, 2 * self.size.heads, self.size.head_dim)
        if reason and self.backend == "triton":
            raise Unsupported(f"primal.backend=triton cannot run: {reason}; give backend=auto")
        return "folded" if reason else "triton"

    def analytic_flops(self, n: int) -> int:
        """See `Attention.analytic_flops`: products with all tokens, and those that make weights."""
        dim, (_, heads, rows, rank) = self.size.dim, self.directions.shape
        width = heads * self.features
        if self.size.causal and self.projections == "moments":
            # X W, the updates of both sums and the products with them, C, and linear projections.
            own = n * (2 * rank * (dim + 2 * width) + self.merge.weight.numel() * heads)
            return 2 * (3 * n * dim**2 + own)
        tokens = 2 * n * (dim**2 + width * dim)
        weights = {"dependent": 2 * rows * width * rank, "independent": 0}
        moment = 2 * (n + rank) * width * self.size.head_dim
        own = weights.get(self.projections, moment)
        return 2 * (tokens + own + 2 * width * dim * rank)

    @torch.no_grad()
    def matrix(self, x: Tokens, context: Context, mask: Mask | None) -> Matrix:
        """See `Attention.matrix`: the kernel Phi_q Phi_k^T, which is decomposed."""
        if context is not x:
            phi_q, phi_k = self._features_of(x, None, 0), self._features_of(context, mask, 1)
            return phi_q.transpose(1, 2) @ phi_k.permute(0, 2, 3, 1)
        with full_precision(self._queries_and_keys(x, mask)) as (u,):
            q, k = self._by_side(self._map_features(u, mask)).unbind(1)
            kernel = q @ k.mT
        return kernel.tril() if self.size.causal and self.projections == "moments" else kernel

    def start(self, batch: int) -> State:
        """See `Attention.start`: sums over the tokens so far, and their number.

        With `moments`, the sums are those of `zoo.kernels.moments.step`; else of queries and keys.
        """
        shape = (2, self.size.heads, self.features, self.directions.shape[-1])
        sums = shape if self.projections == "moments" else (2 * self.size.dim,)
        past = self.zero_past(batch, self.query_key)
        return self.zero_state(batch, *sums), self.zero_state(batch).long(), *past

    def step(self, x: Token, state: State) -> tuple[Token, State]:
        """See `Attention.step`."""
        total, count, *past = state
        projected, past = self.query_key.step(x[:, None], tuple(past))
        u = self._rotated(projected, count[:, None])
        count = count + 1
        if self.projections == "moments":
            tokens, total = self._moment_step(x, self._map_features(u, None), total, count)
            return tokens, (total, count, *past)
        total = total + u.flatten(1)
        mean = (total / count[:, None]).to(u.dtype)
        phi = self._map_features(mean.unflatten(-1, (1, 2 * self.size.heads, -1)), None)
        output_map, bias = self._output_map(self.directions[None])
        return cosine_map.affine(phi, output_map, bias)[:, 0], (total, count, *past)

    def _moment_step(
        self, x: Token, phi: Features, sums: Tensor, count: Tensor
    ) -> tuple[Token, Tensor]:
        """The output at the next token with projections by moments, and the new sums."""
        phi, heads = self._by_side(phi), self._heads(x[:, None])
        with full_precision(phi, heads, self.directions) as (phi, heads, directions):
            scores, sums = moments.step(phi, heads, directions, count, sums)
            merged = self._merge(*scores.unbind(1))
        return self._project(merged)[:, 0], sums

    def _causal_moments(self, x: Tokens, mask: Mask | None, plain: bool) -> Attended:
        """The causal form whose projections are made of the tokens so far."""
        phi, heads = self._by_side(self._features(x, mask)), self._heads(x)
        real = x.new_ones(1, x.shape[1]) if mask is None else mask
        with full_precision(phi, heads, self.directions) as (phi, heads, directions):
            e, r, traces = moments.causal_scores(phi, heads, directions, real.cumsum(1), plain)
            tokens = self._merge(e, r)
        tokens = self._project(tokens)
        if not self.training:
            return Attended(tokens)
        with full_precision(e, r) as (e, r):
            energy = ksvd.energy_of_scores(e, r, self.roots())
            trace = ksvd.trace(self.directions[None])
            if self.trace == "data":
                # A mean over tokens, as the energy: each has projections of its own.
                energy, trace = energy - (traces * real[:, None]).sum(-1), torch.zeros_like(trace)
            count = real.sum(1).expand(x.shape[0])
            loss = ksvd.squared_objective(energy, trace, count, self.ksvd_mean)
        return Attended(tokens, {"ksvd": self.eta * loss})

    def _literal(self, x: Tokens, weights: Weights, mask: Mask | None) -> tuple[Tokens, Energy]:
        """The layer's output, and the energy, from the scores e and r, in fp32 at least."""
        with full_precision(self._queries_and_keys(x, mask), weights) as (u, weights):
            phi = self.phi(u)
            if mask is not None:
                phi = phi * mask[:, :, None, None]
            sides = zip(phi.chunk(2, dim=2), weights.unbind(1), strict=True)
            e, r = (side.transpose(1, 2) @ directions for side, directions in sides)
            merged = self._merge(e, r)
            samples = x.shape[0] if self.training else 0
            energy = ksvd.energy_of_scores(e[:samples], r[:samples], self.roots())
        return self._project(merged), energy

    def _merge(self, e: Scores, r: Scores) -> Tokens:
        """C [e; r] + c, or that of the sides of the output, with the heads of a token merged."""
        scores = torch.cat([e, r][self.shown], dim=-1)
        weight, bias = (part.to(scores.dtype) for part in (self.merge.weight, self.merge.bias))
        return F.linear(scores, weight, bias).transpose(1, 2).flatten(2)

    def _project(self, merged: Tokens) -> Tokens:
        """The output projection, in the dtype of its weight or of autocast."""
        return self.out(merged.to(self.out.weight.dtype))

    def _folded(
        self,
        x: Tokens,
        weights: Weights,
        mask: Mask | None,
        fused: bool,
        phi: Features | None = None,
    ) -> tuple[Tokens, Energy]:
        """The layer's output, and the energy, from Gram matrices; see `_map`."""
        tokens, grams = self._map(x, *self._output_map(weights), mask, fused, phi)
        return tokens, ksvd.energy_of_grams(grams, weights, self.roots())

    def _map(
        self,
        x: Tokens,
        output_map: OutputMap,
        bias: Bias,
        mask: Mask | None,
        fused: bool,
        phi: Features | None,
    ) -> tuple[Tokens, Grams]:
        """Features times `output_map`, and, while training, their Gram matrices.

        `phi` are the features of x, if they are known already.
        """
        if phi is not None or not self.has_kernel:
            phi = self._features(x, mask) if phi is None else phi
            grams = cosine_map.gram(phi if self.training else phi[:0])
            return cosine_map.affine(phi, output_map, bias), grams
        if fused:
            compute = cosine_map.fused
        elif cosine_map.suits(x):
            compute = cosine_map.chunked
        else:
            compute = cosine_map.plain
        given = (x, self.query_key.weight, self.query_key.bias, output_map, bias)
        return compute(*given, 2 * self.size.heads, mask, with_gram=self.training)

    def _objective(
        self, energy: Energy, weights: Weights, x: Tokens, mask: Mask | None
    ) -> Float[Tensor, ""]:
        """J^2, from the energy, which is a sum over tokens."""
        count = energy.new_full((x.shape[0],), x.shape[1]) if mask is None else mask.sum(1)
        with full_precision(energy, weights) as (energy, weights):
            trace = ksvd.trace(weights if self.trace == "data" else self.directions[None])
        return ksvd.squared_objective(energy, trace, count, self.ksvd_mean)
