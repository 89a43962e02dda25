"""Primal-Attention by moments: projections made of all tokens, or of those so far.

A form that was not published of Chen, Tao, Tonin, Suykens, "Primal-Attention: Self-attention
through Asymmetric Kernel SVD in Primal Representation", NeurIPS 2023, arXiv 2305.19798. By the KKT
conditions of asymmetric kernel SVD, W_e = Phi_k^T H_r and W_r = Phi_q^T H_e, where H has the dual
variables of each token, which at a solution are the singular vectors. Here these are linear in the
tokens, H_r = X W_e / n and H_e = X W_r / n with parameters W_e and W_r (p, s):

    W_e|X = 1/n sum_i phi(k_i) x_i^T W_e        e = K X W_e / n
    W_r|X = 1/n sum_i phi(q_i) x_i^T W_r        r = K^T X W_r / n

so that all tokens mix, and not the sampled ones alone. In the causal form the sums run over i <= n:
weights differ between tokens, and are made of no later one, and the state of a step is the two
sums, (f, s) each. The objective of a prefix is a mean over its tokens; J has, of each prefix, the
term of its last token, and Tr(W_e|X(n)^T W_r|X(n)) of `trace=data` is a mean over n.

Scores, loss and output are as in `primal`. Time O(n p s), memory O(n (p + s)) per head; a step
O(p s).
"""

import inspect
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from zoo import ksvd
from zoo.contract import Attended, Context, Mask, Matrix, State, Tokens, Unsupported
from zoo.kernels import causal_sum
from zoo.kernels.precision import full_precision
from zoo.kernels.real_tokens import count_after, positions_after, token_ranks
from zoo.spans import SPANS, by_spans, has_spans
from zoo.variants import primal_forms as forms
from zoo.variants import variants
from zoo.variants.primal import Primal

Heads = Float[Tensor, "b h n width"]
CausalScores = tuple[ksvd.Scores, ksvd.Scores, Float[Tensor, "b h n"]]

# Tokens of a causal block; the result does not depend on it, and 32 is the fastest on a CPU.
CHUNK = 32


def _signature() -> inspect.Signature:
    whole = inspect.signature(Primal)
    without = {"rank_multi", "projections"}
    return whole.replace(parameters=[p for p in whole.parameters.values() if p.name not in without])


@variants.register("primal-moments")
class PrimalMoments(Primal):
    """Primal-Attention with the moments of all tokens, or of the past, as projections."""

    version = "1.0"
    __signature__ = _signature()
    by_features = True
    spans = SPANS

    def forward(self, x: Tokens, context: Context | None = None, mask: Mask = None) -> Attended:
        if context is not None and context is not x:
            return forms.cross_attention(self, x, context, mask)
        literal = self.backend == "literal"
        if not literal and has_spans(self, x, context):
            # The state has the sums of the loss, too.
            sums, extend = self.zero_state(len(x), self.size.heads), type(self)._extend_with_loss
            state = *self.start(len(x)), sums, sums, sums
            tokens, (_, count, *_, energy, traces) = by_spans(self, extend, x, mask, state)
            return Attended(tokens, self._causal_losses(energy, traces, count))
        phi = forms.features(self.phi, self.queries_and_keys(x, mask), mask)
        sides = forms.by_side(phi, self.size.heads)
        if self.size.causal:
            return self._causal(x, mask, sides, plain=literal)
        # W_e is in the span of the features of keys, W_r in the span of the features of queries.
        weights = self._moments(sides.flip(1), x, mask, self.directions)
        if literal:
            tokens, energy = self._literal(x, weights, mask)
        else:
            tokens, energy = self.output(phi, weights), self.energy(phi, weights)
        return Attended(tokens, self.losses(energy, weights, forms.token_count(x, mask)))

    def queries_and_keys(self, x: Tokens, mask: Mask) -> forms.Vectors:
        projected = self.short_conv(self.query_key(x), mask)
        return self.rotated(projected, None if mask is None else token_ranks(mask))

    def weights(
        self, x: Tokens, mask: Mask, directions: ksvd.Directions, *,
        span: forms.BySide | None = None,
    ) -> ksvd.Weights:  # fmt: skip
        if span is None or self.size.causal:
            raise Unsupported(f"causal {self.name()} has weights for each token")
        return self._moments(span, x, mask, directions)

    def _rows(self, samples: int) -> int:
        return self.size.head_dim

    def _moments(
        self, span: forms.BySide, x: Tokens, mask: Mask, directions: ksvd.Directions
    ) -> ksvd.Weights:
        # The mean of phi x^T over real tokens, multiplied into `directions`.
        count = forms.token_count(x, mask)
        with full_precision(span, self._heads(x)) as (span, heads):
            count = count.clamp_min(1).to(heads.dtype)[:, None, None, None, None]
            return (span.mT @ heads[:, None] / count).to(directions.dtype) @ directions

    def _heads(self, x: Tokens) -> Heads:
        return x.unflatten(-1, (self.size.heads, -1)).transpose(1, 2)

    def _causal(self, x: Tokens, mask: Mask, phi: forms.BySide, plain: bool) -> Attended:
        # The projections are made of the tokens so far.
        real = x.new_ones(1, x.shape[1], dtype=torch.bool) if mask is None else mask
        with full_precision(phi, self._heads(x), self.directions) as (phi, heads, directions):
            e, r, traces = causal_scores(phi, heads, directions, real.cumsum(1), plain)
            merged = self._merge(e, r)
        tokens = self.out(merged)
        with full_precision(e, r) as (e, r):
            energy = ksvd.energy_of_scores(e, r, self.roots())
            sums, count = (traces * real[:, None]).sum(-1), real.sum(1).expand(x.shape[0])
            return Attended(tokens, self._causal_losses(energy, sums, count))

    def _causal_losses(self, energy: ksvd.Energy, traces: Any, count: Tensor) -> dict[str, Tensor]:
        if not self.training:
            return {}
        trace = ksvd.trace(self.directions[None])
        if self.trace == "data":
            # A mean over tokens, as the energy: projections differ between tokens.
            energy, trace = energy - traces, torch.zeros_like(trace)
        return {"ksvd": self.eta * ksvd.squared_objective(energy, trace, count, self.ksvd_mean)}

    def analytic_flops(self, n: int) -> int:
        dim, (_, heads, _, rank) = self.size.dim, self.directions.shape
        width = heads * self.features
        if self.size.causal:
            # X W, the updates of both sums and the products with them, C, and linear projections.
            merge = (2 if self.sides == "both" else 1) * rank * dim
            sums = n * (2 * rank * (dim + 2 * width) + merge)
            return 2 * (3 * n * dim**2 + sums)
        moments = 2 * (n + rank) * width * self.size.head_dim
        return 2 * (2 * n * (dim**2 + width * dim) + moments + 2 * width * dim * rank)

    def matrix(self, x: Tokens, context: Context, mask: Mask) -> Matrix:
        kernel = super().matrix(x, context, mask)
        return kernel.tril() if self.size.causal and context is x else kernel

    def start(self, batch: int) -> State:
        # The sums of both sides, and the number of tokens.
        shape = (2, self.size.heads, self.features, self.directions.shape[-1])
        past = self.zero_past(batch, self.short_conv)
        return self.zero_state(batch, *shape), self.zero_state(batch).long(), *past

    def extend(self, x: Tokens, real: Mask, state: State) -> tuple[Tokens, State]:
        zeros = self.zero_state(len(x), self.size.heads)
        tokens, state = self._extend_with_loss(x, real, (*state, zeros, zeros, zeros))
        return tokens, state[:-3]

    def _extend_with_loss(self, x: Tokens, real: Mask, state: State) -> tuple[Tokens, State]:
        # The state has three more sums, (b, h): the additions to the trace, the energy and the
        # traces; see `causal_scores`.
        (sums, count, *past, added, energy, traces), n = state, x.shape[1]
        projected, past = self.short_conv.extend(self.query_key(x), tuple(past), real)
        positions = positions_after(count, n)
        phi = forms.features(self.phi, self.rotated(projected, positions), real)
        phi, heads = forms.by_side(phi, self.size.heads), self._heads(x)
        with full_precision(phi, heads, self.directions) as (phi, heads, directions):
            # Sides are more heads. W_e is made of the features of keys, W_r of the other ones.
            sides = phi, phi.flip(1), heads[:, None] @ directions, sums
            queries, keys, values, sums = (side.flatten(1, 2) for side in sides)
            scores, sums = causal_sum.total_after(queries, keys, values, sums, CHUNK)
            number = (positions + 1).to(scores.dtype)[:, None]
            e, r = (scores / number[..., None]).chunk(2, dim=1)
            merged = self._merge(e, r)
            if self.training and torch.is_grad_enabled():
                new = additions(phi, values.unflatten(1, (2, -1)), *scores.chunk(2, dim=1))
                of_tokens = (added[..., None] + new.cumsum(-1)) / number.square()
                of_tokens = of_tokens if real is None else of_tokens * real[:, None]
                added, traces = added + new.sum(-1), traces + of_tokens.sum(-1)
                energy = energy + ksvd.energy_of_scores(e, r, self.roots())
        tokens = self.out(merged)
        sums = sums.unflatten(1, (2, -1))
        return tokens, (sums, count_after(count, n, real), *past, added, energy, traces)


def causal_scores(
    phi: forms.BySide, x: Heads, directions: ksvd.Directions, count: Shaped[Tensor, "#b n"],
    plain: bool,
) -> CausalScores:  # fmt: skip
    # e_n = phi_q(n)^T W_e|X(n), r_n = phi_k(n)^T W_r|X(n) and Tr(W_e|X(n)^T W_r|X(n)).
    # `phi` is zero where padded, `count` the number of tokens so far; `plain` for the definition,
    # with all n x n weights. A later token changes no earlier score, not even through rounding.
    phi_q, phi_k = phi.unbind(1)
    a, b = (x[:, None] @ directions).unbind(1)
    sums = causal_sum.plain if plain else partial(causal_sum.chunked, chunk=CHUNK)
    e, r = sums(phi_q, phi_k, a), sums(phi_k, phi_q, b)
    added = additions(phi, torch.stack([a, b], 1), e, r)
    count = count.clamp_min(1)[:, None].to(e.dtype)
    return e / count[..., None], r / count[..., None], added.cumsum(-1) / count.square()


def additions(
    phi: forms.BySide, values: Float[Tensor, "b c h n s"], e: ksvd.Scores, r: ksvd.Scores
) -> Float[Tensor, "b h n"]:
    # n^2 Tr_n is a sum over i, j <= n of kappa(j, i) (a_i . b_j): token n adds a row and a column.
    (phi_q, phi_k), (a, b) = phi.unbind(1), values.unbind(1)
    return (e * b).sum(-1) + (r * a).sum(-1) - (phi_q * phi_k).sum(-1) * (a * b).sum(-1)
