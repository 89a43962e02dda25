"""Performer: softmax attention through positive random features (FAVOR+).

Choromanski et al., "Rethinking Attention with Performers", 2020, arXiv 2009.14794, lemma 1 and
section 2.4. With q and k scaled by e^(-1/4) and M random directions w_m ~ N(0, I_e),

    phi(x)_m = exp(w_m . x - |x|^2 / 2) / sqrt(M)        E[phi(q) . phi(k)] = exp(q . k)
    out_i = phi(q_i) (sum_j phi(k_j) v_j^T) / (phi(q_i) . sum_j phi(k_j))

where j runs over the real tokens, and up to i in the causal form. The w_m are orthogonal in
blocks of e, with the norms of independent Gaussian rows. Time O(n M e) and memory O(n M) per
head; for the causal form see `zoo.kernels.causal_sum`.

Stabilisation is exact. Write q' and k' for the exponents of the two sides. For any numbers c_m
and r_i, the ratio does not change with

    phi(q_i)_m phi(k_j)_m  ~  exp(q'_im + c_m - r_i) exp(k'_jm - c_m)

because e^(-r_i) scales numerator and denominator alike, and c_m cancels in each product. Hence no
epsilon, and gradients follow the formula. r_i is the logarithm of the row's sum, which makes
the query side a softmax over features; sqrt(M) and |q|^2 / 2 cancel in it and are left out.

    all tokens   c_m = max of k'_jm over the real keys of the sample and head: the key side never
                 exceeds 1, and the denominator is at least 1.
    causal       c_m = min(|w_m|^2 / 2 - 60, 0), since a maximum over keys would depend on the
                 future. As k'_jm = |w_m|^2 / 2 - |k_j - w_m|^2 / 2, the key side is at most
                 e^60 = 1e26, whose sums stay far below fp32's 3e38, up to |w_m|^2 = 120, and
                 underflows only where |k_j - w_m|^2 / 2 > 147, where without the 60 it would from
                 87 on. Wider heads have c_m = 0, at which ordinary keys do not underflow, and
                 their key side is clamped at e^60, which only keys very close to w_m reach.

In fp32 the causal form is exact to 1e-5 for keys, before the scaling, of length 30 (e = 16) or 36
(e = 32 and 64). Longer ones lose features, which underflow, and at twice that length all of them:
outputs are 0. Normalise such inputs, or compute in fp64. The form of all tokens has no such limit.

Deviations: the published code adds an epsilon to every feature, which is larger than the features
of large inputs, and takes one maximum over all keys and features, padded and future ones included.
A query without real keys, or whose causal features all underflow, returns zero. All heads
share one projection.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Count, Keys, Mask, Queries, Size, State, Traits
from zoo.kernels import causal_sum, feature_sum
from zoo.kernels.feature_sum import Part
from zoo.kernels.precision import at_least_fp32
from zoo.projected import ProjectedAttention
from zoo.spans import SPANS, in_spans
from zoo.variants import variants

HEADROOM = 60.0

Directions = Float[Tensor, "f e"]


@variants.register("performer")
class Performer(ProjectedAttention):
    """Linear attention whose kernel is an unbiased estimate of the softmax kernel.

    Axis letters beyond the contract's: `f` random features.

    Args:
        features: M, the number of random features; the error falls as 1 / sqrt(M).
        orthogonal: orthogonal directions in blocks of e, or independent Gaussian ones.
        redraw: in training, draw a new projection in each forward from the default generator,
            as dropout does; evaluation uses the one drawn here.
        chunk: tokens of a causal block; the result does not depend on it.
    """

    version = "1.0"
    traits = Traits(causal=True, cross=True, linear=True, stochastic=True, recurrent=True)
    family = "kernel"
    # fp32 at least: exponentials of half-precision exponents are wrong by large factors.
    upcast = True
    forward = in_spans(ProjectedAttention.forward)

    def __init__(
        self,
        size: Size,
        *,
        features: Count = 256,
        orthogonal: bool = True,
        redraw: bool = False,
        chunk: Count = 64,
    ) -> None:
        super().__init__(size)
        self.orthogonal, self.redraw, self.chunk = orthogonal, redraw, chunk
        self.projection: Tensor
        empty = torch.empty(features, size.head_dim)
        self.register_buffer("projection", draw_projection(empty, orthogonal))

    @property
    def spans(self) -> int:
        # `extend` has one projection.
        return 0 if self.redraw else 2 * SPANS

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask) -> Queries:
        w = self.projection
        if self.redraw and self.training:
            w = draw_projection(w, self.orthogonal)
        w = w.to(q.dtype)
        if not self.size.causal and feature_sum.suits(q, k):
            key_map = KeyMap.of(k, mask, w)
            return feature_sum.mean(QueryMap.of(key_map), key_map, q, k, v)
        queries, keys = self._features(q, k, mask, w)
        return causal_sum.mean(queries, keys, v, self.size.causal, self.chunk)

    def head_flops(self, n: int) -> int:
        # The features of both sides, then as in `linear`.
        width = self.size.head_dim
        return 2 * n * len(self.projection) * (2 * width + 2 * width + 1)

    def begin(self, batch: int) -> State:
        # The sums of exp(k'_jm - c_m) [v_j, 1]^T.
        features = len(self.projection)
        return (self.zero_state(batch, self.size.heads, features, self.size.head_dim + 1),)

    def attend_after(
        self, q: Queries, k: Keys, v: Keys, real: Mask, state: State
    ) -> tuple[Queries, State]:
        # The projection is the one drawn in `__init__`.
        queries, keys = self._features(q, k, real, self.projection.to(q.dtype))
        heads, sums = causal_sum.mean_after(queries, keys, v, state[0], self.chunk)
        return heads, (sums,)

    def _features(
        self, q: Queries, k: Keys, mask: Mask, w: Directions
    ) -> tuple[Float[Tensor, "b h n f"], Float[Tensor, "b h m f"]]:
        scale = q.shape[-1] ** -0.25
        directions = scale * w
        half_norms = k.square().sum(-1, keepdim=True) * (-(scale**2) / 2)
        if mask is not None:
            half_norms = half_norms.masked_fill(~mask[:, None, :, None], -torch.inf)
        queries = q @ directions.mT
        # One more column: subtracting the norms would be one more pass over all features.
        keys = torch.cat([k, half_norms], dim=-1) @ F.pad(directions, (0, 1), value=1.0).mT
        # In place: these are the largest tensors of the layer, and a copy costs as much as a
        # product.
        if self.size.causal:
            c = (w.square().sum(-1) / 2 - HEADROOM).clamp_max(0.0)
            return queries.add_(c).softmax(-1), keys.sub_(c).clamp_max(HEADROOM).exp_()
        c = keys.detach().amax(-2, keepdim=True)
        c = c.masked_fill(c.isinf(), 0.0)
        return queries.add_(c).softmax(-1), keys.sub_(c).exp_()


@dataclass(frozen=True)
class KeyMap(feature_sum.FeatureMap):
    """exp(k'_jm - c_m); zero at padded tokens."""

    features: int
    directions: Float[Tensor, "e_and_1 f"]  # The w_m times `scale`, and a row of ones for the norms
    scale: float  # e^(-1/4)
    mask: Mask
    shift: Float[Tensor, "#b #h 1 f"]  # c_m, the largest k'_jm of each sample and head

    @classmethod
    def of(cls, k: Keys, mask: Mask, w: Directions) -> "KeyMap":
        scale = k.shape[-1] ** -0.25
        directions = F.pad(scale * w, (0, 1), value=1.0).mT.contiguous()
        shift = w.new_full((*k.shape[:2], 1, len(w)), -torch.inf)
        start = cls(len(w), directions, scale, mask, shift)
        with torch.no_grad():
            for part in feature_sum.parts_of(k, len(w)):
                largest = start.exponents(feature_sum.select(k, part), part).amax(-2, keepdim=True)
                shift[part[0]] = torch.maximum(shift[part[0]], largest)
        return replace(start, shift=shift.masked_fill(shift.isinf(), 0.0))

    def exponents(self, k: Keys, part: Part) -> Float[Tensor, "b h m f"]:
        half_norms = k.square().sum(-1, keepdim=True) * (-(self.scale**2) / 2)
        if self.mask is not None:
            half_norms = half_norms.masked_fill(~self.mask[part][:, None, :, None], -torch.inf)
        return torch.cat([k, half_norms], dim=-1) @ self.directions

    def __call__(self, x: Tensor, part: Part) -> Tensor:
        return self.exponents(x, part).sub_(self.shift[part[0]]).exp_()

    def vjp(self, x: Tensor, features: Tensor, gradient: Tensor, part: Part, out: Tensor) -> None:
        width = x.shape[-1]
        d_keys, d_half_norms = (gradient.mul_(features) @ self.directions.mT).split([width, 1], -1)
        torch.sub(d_keys, x * (d_half_norms * self.scale**2), out=out)


@dataclass(frozen=True)
class QueryMap(feature_sum.FeatureMap):
    """exp(q'_im + c_m - r_i), with the row's maximum as r_i."""

    features: int
    directions: Float[Tensor, "e f"]
    shift: Float[Tensor, "#b #h 1 f"]

    @classmethod
    def of(cls, key_map: KeyMap) -> "QueryMap":
        # It has the stabilisers of `key_map`, so that they cancel.
        return cls(key_map.features, key_map.directions[:-1], key_map.shift)

    def __call__(self, x: Tensor, part: Part) -> Tensor:
        exponents = (x @ self.directions).add_(self.shift[part[0]])
        return exponents.sub_(exponents.detach().amax(-1, keepdim=True)).exp_()

    def vjp(self, x: Tensor, features: Tensor, gradient: Tensor, part: Part, out: Tensor) -> None:
        out.copy_(gradient.mul_(features) @ self.directions.mT)


def draw_projection(like: Directions, orthogonal: bool) -> Directions:
    # w_m ~ N(0, I_e), independent or in orthogonal blocks.
    gaussian = torch.randn_like(like, dtype=at_least_fp32(like.dtype))
    if not orthogonal:
        return gaussian
    features, width = like.shape
    blocks = gaussian.new_empty(-(-features // width), width, width).normal_()
    rotations, triangles = torch.linalg.qr(blocks)
    # These signs make the rotations uniform: QR alone fixes them by convention.
    rotations = rotations * triangles.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]
    return gaussian.norm(dim=-1, keepdim=True) * rotations.flatten(0, 1)[:features]
