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
precision. `backend=folded` computes the same without scores of length n: C and the output
projection are multiplied into the per-sample weights, so that tokens pass through one product, and
the loss needs the Gram matrices phi^T phi (p x p) only (`zoo.kernels.cosine_map`).

Published causal form: q and k are replaced by their means over the tokens so far, and W_e and W_r
are used as they are (`projections=independent`).

Forms that were not published: `zoo.variants.primal_forms`, and `zoo.variants.primal_moments`.

Deviations: sampled tokens are real tokens, never padding, and means run over real tokens. Without
padding both are the published formulas. Positions are exact floors of i (n - 1) / (a - 1), where
the published code truncates a float `linspace`.
"""

from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Int, Shaped
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import feature_maps, ksvd
from zoo.contract import Attended, Attention, Context, Count, Mask, Matrix, Positions, State, Tokens
from zoo.feature_maps import FeatureMapName
from zoo.kernels import cosine_map
from zoo.kernels.precision import full_precision, without_autocast
from zoo.kernels.real_tokens import (
    count_after,
    gather_tokens,
    positions_after,
    running_mean,
    token_ranks,
)
from zoo.ksvd import Energy, KsvdMean, Weights
from zoo.projection import ShortConvolution
from zoo.registry import UserError
from zoo.size import Size
from zoo.traits import Traits
from zoo.variants import primal_forms as forms
from zoo.variants import variants


@variants.register("primal")
class Primal(Attention):
    """Asymmetric kernel SVD of the attention kernel, in the primal, with its loss.

    Axis letters beyond the contract's: `p` features, `c` the two sides (query, key), `a` sampled
    tokens, `s` rank. `by_features`: whether features make the weights, as in `primal_moments`.

    Args:
        size: see `Size`.
        rank: s, the number of singular directions.
        rank_multi: sampled tokens per direction: a = min(max_len, rank * rank_multi).
        eta: weight of the KSVD loss.
        projections: `dependent` multiplies the sampled tokens into W_e and W_r; `independent`
            uses them as they are, and then does not mix tokens unless causal; `auto` is
            `dependent`, and in the causal form `independent`, both as published.
        trace: `weights` for Tr(W_e^T W_r), as in all published runs; `data` for
            Tr(W_e|X^T W_r|X).
        ksvd_mean: `batch` averages over batch, heads and tokens, then squares (the published
            LRA and vision runs); `sample` averages over heads and tokens of each sample,
            squares, then averages over samples (the published time-series runs).
        backend: `folded`, which is also `auto`, for Gram matrices instead of scores; `literal`
            for the published order of computation.
        feature_map: phi, a name of `zoo.feature_maps`.
        sides: the scores in the output: `both`, `right` for e alone, or `left` for r alone. The
            loss has both in any case.
        lambda_form: how Lambda is made of its parameters; see `zoo.variants.primal_forms`.
        initialisation: of W_e and W_r: `published` for Frobenius norm 1 per head, `orthonormal`
            for orthonormal columns of each head.
        initial_scale: factor of the initial W_e and W_r.
    """

    version = "1.0"
    traits = Traits(
        causal=True, cross=True, linear=True, stochastic=False, recurrent=True, losses=("ksvd",)
    )
    family = "primal"
    by_features: ClassVar[bool] = False
    undecayed = ("scales",)

    def __init__(
        self, size: Size, *, rank: Count = 30, rank_multi: Count = 10,
        eta: Annotated[float, Field(ge=0)] = 0.1,
        projections: Literal["auto", "dependent", "independent"] = "auto",
        trace: Literal["weights", "data"] = "weights", ksvd_mean: KsvdMean = "batch",
        backend: Literal["auto", "folded", "literal"] = "auto",
        feature_map: FeatureMapName = "cosine", sides: Literal["both", "right", "left"] = "both",
        lambda_form: forms.LambdaForm = "squared",
        initialisation: Literal["published", "orthonormal"] = "published",
        initial_scale: Annotated[float, Field(gt=0)] = 1.0,
    ) -> None:  # fmt: skip
        super().__init__(size)
        if size.causal and projections == "dependent":
            raise UserError(
                "primal.projections=dependent uses future tokens; give auto, or use primal-moments"
            )
        auto = "independent" if size.causal else "dependent"
        self.projections = auto if projections == "auto" else projections
        self.eta, self.trace, self.sides = eta, trace, sides
        self.backend = "folded" if backend == "auto" else backend
        self.ksvd_mean: KsvdMean = ksvd_mean
        self.lambda_form: forms.LambdaForm = lambda_form
        self.phi = feature_maps.feature_maps.find(feature_map)
        # The form has the kernels of `zoo.kernels.cosine_map`.
        self.has_kernel = feature_map == "cosine" and not (
            size.causal or size.rotary or size.short_conv
        )
        self.features = feature_maps.width(feature_map, size.head_dim)
        self.query_key = nn.Linear(size.dim, 2 * size.dim)
        self.short_conv = ShortConvolution(size, 2 * size.dim)
        rows = self._rows(min(size.max_len, rank * rank_multi))
        self.directions = nn.Parameter(torch.empty(2, size.heads, rows, rank))
        self.scales = forms.initial_scales(size.heads, rank, lambda_form)
        self.merge = nn.Linear((2 if sides == "both" else 1) * rank, size.head_dim)
        self.out = nn.Linear(size.dim, size.dim)
        ksvd.initialise(self.directions.data, initialisation == "orthonormal", initial_scale)

    def forward(self, x: Tokens, context: Context | None = None, mask: Mask = None) -> Attended:
        # While training, `losses` holds `ksvd`, already times eta.
        if context is not None and context is not x:
            return forms.cross_attention(self, x, context, mask)
        weights = self.weights(x, mask, self.directions)
        attend = self._literal if self.backend == "literal" else self._folded
        tokens, energy = attend(x, weights, mask)
        return Attended(tokens, self.losses(energy, weights, forms.token_count(x, mask)))

    def _rows(self, samples: int) -> int:
        # Of W_e and W_r.
        return samples if self.projections == "dependent" else self.features

    def weights(
        self, x: Tokens, mask: Mask, directions: ksvd.Directions, *,
        span: forms.BySide | None = None,
    ) -> Weights:  # fmt: skip
        # W|X, which x makes of `directions`, or these where it makes none; `span` are features that
        # span them, if `by_features`.
        if self.projections == "independent":
            return directions[None]
        sample = gather_tokens(x, sampled_positions(directions.shape[-2], x, mask))
        sample = sample.unflatten(-1, (self.size.heads, self.size.head_dim))
        if self.features != self.size.head_dim:
            sample = feature_maps.apply(self.phi, sample)
        with without_autocast(x):
            sample = sample.to(directions.dtype)
            return torch.einsum("bahp,chas->bchps", sample, directions)

    def queries_and_keys(self, x: Tokens, mask: Mask) -> forms.Vectors:
        projected = self.short_conv(self.query_key(x), mask)
        u = self.rotated(projected, None if mask is None else token_ranks(mask))
        return running_mean(u.flatten(2), mask).view_as(u) if self.size.causal else u

    def rotated(self, projected: Tokens, positions: Positions | None) -> forms.Vectors:
        u = projected.unflatten(-1, (-1, self.size.head_dim))
        return self.apply_rotary(u.transpose(1, 2), positions).transpose(1, 2)

    def roots(self) -> ksvd.Scales:
        return forms.roots(self.scales, self.lambda_form)

    def _literal(self, x: Tokens, weights: Weights, mask: Mask) -> tuple[Tokens, Energy]:
        # From the scores e and r, in fp32 at least.
        with full_precision(self.queries_and_keys(x, mask), weights) as (u, weights):
            phi = self.phi(u)
            if mask is not None:
                phi = phi * mask[:, :, None, None]
            sides = zip(phi.chunk(2, dim=2), weights.unbind(1), strict=True)
            e, r = (side.transpose(1, 2) @ directions for side, directions in sides)
            merged = self._merge(e, r)
            samples = x.shape[0] if self.training else 0
            energy = ksvd.energy_of_scores(e[:samples], r[:samples], self.roots())
        return self.out(merged), energy

    def _merge(self, e: ksvd.Scores, r: ksvd.Scores) -> Tokens:
        scores = torch.cat([e, r][forms.SIDES[self.sides]], dim=-1)
        return self.merge(scores.to(self.parameter_dtype)).transpose(1, 2).flatten(2)

    def _folded(self, x: Tokens, weights: Weights, mask: Mask) -> tuple[Tokens, Energy]:
        if self.has_kernel and forms.are_plain(self.query_key, self.merge, self.out):
            query_key, groups = self.query_key, 2 * self.size.heads
            parameters = cosine_map.Map(query_key.weight, query_key.bias, *self.output_map(weights))
            tokens, grams = cosine_map.apply(x, parameters, groups, mask, self.training)
            return tokens, ksvd.energy_of_grams(grams, weights, self.roots())
        phi = forms.features(self.phi, self.queries_and_keys(x, mask), mask)
        return self.output(phi, weights), self.energy(phi, weights)

    def energy(self, phi: cosine_map.Features, weights: Weights) -> Energy:
        # Of no sample outside training.
        grams = cosine_map.gram(phi if self.training else phi[:0])
        return ksvd.energy_of_grams(grams, weights, self.roots())

    def output(self, phi: cosine_map.Features, weights: Weights) -> Tokens:
        # Plain linear layers are multiplied into the weights, and others are called.
        if forms.are_plain(self.merge, self.out):
            return cosine_map.affine(phi, *self.output_map(weights))
        with full_precision(forms.by_side(phi, self.size.heads), weights) as (phi, weights):
            scores = phi @ weights
            e, r = F.pad(scores, (0, 0) * 3 + (0, 2 - scores.shape[1])).unbind(1)
            merged = self._merge(e, r)
        return self.out(merged)

    def output_map(self, weights: Weights) -> tuple[cosine_map.OutputMap, cosine_map.OutputBias]:
        out = self.out.weight.unflatten(1, (self.size.heads, self.size.head_dim))
        merge = self.merge.weight.unflatten(1, (-1, self.scales.shape[-1]))
        if self.sides != "both":  # zero for the side that the output does not have
            merge = F.pad(merge, (0, 0, int(self.sides == "left"), int(self.sides == "right")))
        # All tokens are multiplied by one small matrix per sample: fp32 takes little time.
        with without_autocast(weights):
            merge_and_project = torch.einsum("dhp,pcs->chsd", out, merge[:, : weights.shape[1]])
            bias = torch.einsum("dhp,p->d", out, self.merge.bias) + self.out.bias
            return (weights @ merge_and_project).flatten(1, 3), bias

    def losses(
        self, energy: Energy, weights: Weights, count: Shaped[Tensor, " b"]
    ) -> dict[str, Tensor]:
        # eta J^2; `energy` is a sum over `count` tokens.
        if not self.training:
            return {}
        with full_precision(energy, weights) as (energy, weights):
            trace = ksvd.trace(weights if self.trace == "data" else self.directions[None])
        return {"ksvd": self.eta * ksvd.squared_objective(energy, trace, count, self.ksvd_mean)}

    def backend_for(self, x: Tokens) -> str:
        return self.backend

    def analytic_flops(self, n: int) -> int:
        # Products with all tokens, and those that make weights.
        dim, (_, heads, rows, rank) = self.size.dim, self.directions.shape
        width = heads * self.features
        sampled = 2 * rows * width * rank if self.projections == "dependent" else 0
        return 2 * (2 * n * (dim**2 + width * dim) + sampled + 2 * width * dim * rank)

    @torch.no_grad()
    def matrix(self, x: Tokens, context: Context, mask: Mask) -> Matrix:
        return forms.kernel_matrix(self, x, context, mask)

    def start(self, batch: int) -> State:
        # Sums of queries and keys over the tokens so far, their number.
        past = self.zero_past(batch, self.short_conv)
        return self.zero_state(batch, 2 * self.size.dim), self.zero_state(batch).long(), *past

    def extend(self, x: Tokens, real: Mask, state: State) -> tuple[Tokens, State]:
        (total, count, *past), n = state, x.shape[1]
        projected, past = self.short_conv.extend(self.query_key(x), tuple(past), real)
        positions = positions_after(count, n)
        u = self.rotated(projected, positions)
        new = u.flatten(2).to(total.dtype)
        totals = total[:, None] + (new if real is None else new * real[..., None]).cumsum(1)
        means = (totals / (positions + 1)[..., None]).to(u.dtype).view_as(u)
        tokens = self.output(forms.features(self.phi, means, None), self.directions[None])
        return tokens, (totals[:, -1], count_after(count, n, real), *past)


def sampled_positions(count: int, x: Tokens, mask: Mask) -> Int[Tensor, "b a"]:
    # Evenly spaced real tokens, first and last included. Fewer real tokens are repeated; without
    # any it is the last position.
    batch, n, _ = x.shape
    index = torch.arange(count, device=x.device)
    last = max(count - 1, 1)
    if mask is None:
        return (index * (n - 1) // last).expand(batch, -1)
    real = mask.cumsum(1)
    rank = index * (real[:, -1:] - 1).clamp_min(0) // last
    # The token of rank r is the first at which r + 1 real tokens have been counted.
    return torch.searchsorted(real, rank + 1).clamp_max(n - 1)
