"""Performer: softmax attention through positive random features (FAVOR+).

Choromanski et al., "Rethinking Attention with Performers", 2020, arXiv 2009.14794, lemma 1 and
section 2.4. With q and k scaled by e^(-1/4) and M random directions w_m ~ N(0, I_e),

    phi(x)_m = exp(w_m . x - |x|^2 / 2) / sqrt(M)        E[phi(q) . phi(k)] = exp(q . k)
    out_i = phi(q_i) (sum_j phi(k_j) v_j^T) / (phi(q_i) . sum_j phi(k_j))

where j runs over the real tokens, and up to i in the causal form. The w_m are orthogonal in
blocks of e, with the norms of independent Gaussian rows. Time O(n M e) and memory O(n M) per
head; the causal form adds what `zoo.kernels.causal_sum` says.

Stabilisation is exact. Write q' and k' for the exponents of the two sides. For any numbers c_m
and r_i,

    phi(q_i)_m phi(k_j)_m  ~  exp(q'_im + c_m - r_i) exp(k'_jm - c_m)

leaves the ratio as it is: e^(-r_i) scales numerator and denominator alike, and c_m cancels in
each product. Hence no epsilon, and gradients are those of the formula. r_i is the logarithm of
the row's sum, which makes the query side a softmax over features; sqrt(M) and |q|^2 / 2 cancel in
it and are left out.

    all tokens   c_m = max of k'_jm over the real keys of the sample and head: the key side never
                 exceeds 1, and the denominator never falls below 1.
    causal       c_m = min(|w_m|^2 / 2 - 60, 0), since a maximum over keys would tell the past
                 about the future. As k'_jm = |w_m|^2 / 2 - |k_j - w_m|^2 / 2, the key side is at
                 most e^60 = 1e26, whose sums stay far below fp32's 3e38, up to |w_m|^2 = 120,
                 and vanishes only where |k_j - w_m|^2 / 2 > 147, where without the 60 it would
                 from 87 on. Wider heads keep c_m = 0, at which ordinary keys do not vanish, and
                 their key side is cut at e^60; it takes a key right beside w_m to reach that.

Deviations: the published code adds an epsilon to every feature, which at larger inputs swamps
them, and takes one maximum over all keys and features, padded and future ones included. A query
with no real key in sight, or whose causal features all vanish, returns zero. One projection
serves all heads.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Size, State, Traits
from zoo.kernels import causal_sum, recurrent_sum
from zoo.projected import ProjectedAttention
from zoo.registry import require_at_least
from zoo.variants import variants

HEADROOM = 60.0


@variants.register("performer")
class Performer(ProjectedAttention):
    """Linear attention whose kernel is an unbiased estimate of the softmax kernel.

    Axis letters beyond the contract's: `f` random features.
    """

    traits = Traits(causal=True, cross=True, linear=True, stochastic=True, recurrent=True)
    # fp32 at least: exponentials of half-precision exponents are wrong by whole factors.
    upcast = True

    def __init__(
        self,
        size: Size,
        *,
        features: int = 256,
        orthogonal: bool = True,
        redraw: bool = False,
        chunk: int = 128,
    ) -> None:
        """Draw the projection.

        Args:
            size: what every variant is built from.
            features: M, the number of random features; the error falls as 1 / sqrt(M).
            orthogonal: orthogonal directions in blocks of e, or independent Gaussian ones.
            redraw: in training, draw a fresh projection in each forward from the default generator,
                as dropout does; evaluation uses the one drawn here.
            chunk: tokens of a causal block; the result does not depend on it.

        Raises:
            UserError: `features` or `chunk` below 1.
        """
        super().__init__(size)
        require_at_least(1, "performer", features=features, chunk=chunk)
        self.orthogonal, self.redraw, self.chunk = orthogonal, redraw, chunk
        self.projection: Tensor
        self.register_buffer("projection", draw(torch.empty(features, size.head_dim), orthogonal))

    def attend(
        self,
        q: Float[Tensor, "b h n e"],
        k: Float[Tensor, "b h m e"],
        v: Float[Tensor, "b h m e"],
        mask: Bool[Tensor, "b m"] | None,
    ) -> Float[Tensor, "b h n e"]:
        """See `ProjectedAttention.attend`."""
        fresh = self.redraw and self.training
        w = draw(self.projection, self.orthogonal) if fresh else self.projection
        queries, keys = self._features(q, k, mask, w.to(q.dtype))
        return causal_sum.mean(queries, keys, v, self.size.causal, self.chunk)

    def begin(self, batch: int) -> State:
        """See `ProjectedAttention.begin`: the sums of exp(k'_jm - c_m) [v_j, 1]^T."""
        features = len(self.projection)
        return (self.zero_state(batch, self.size.heads, features, self.size.head_dim + 1),)

    def recur(
        self,
        q: Float[Tensor, "b h 1 e"],
        k: Float[Tensor, "b h 1 e"],
        v: Float[Tensor, "b h 1 e"],
        state: State,
    ) -> tuple[Float[Tensor, "b h 1 e"], State]:
        """See `ProjectedAttention.recur`; the projection is always the one drawn in `__init__`."""
        queries, keys = self._features(q, k, None, self.projection.to(q.dtype))
        heads, sums = recurrent_sum.mean(queries, keys, v, *state)
        return heads, (sums,)

    def _features(
        self,
        q: Float[Tensor, "b h n e"],
        k: Float[Tensor, "b h m e"],
        mask: Bool[Tensor, "b m"] | None,
        w: Float[Tensor, "f e"],
    ) -> tuple[Float[Tensor, "b h n f"], Float[Tensor, "b h m f"]]:
        """The stabilised features of both sides."""
        scale = q.shape[-1] ** -0.25
        directions = scale * w
        halves = k.square().sum(-1, keepdim=True) * (-(scale**2) / 2)
        if mask is not None:
            halves = halves.masked_fill(~mask[:, None, :, None], -torch.inf)
        queries = q @ directions.mT
        # One column more, where subtracting the halves would be one pass more over all features.
        keys = torch.cat([k, halves], dim=-1) @ F.pad(directions, (0, 1), value=1.0).mT
        # In place from here on: a layer has no larger tensors, and every copy costs as a product.
        if self.size.causal:
            c = (w.square().sum(-1) / 2 - HEADROOM).clamp_max(0.0)
            return queries.add_(c).softmax(-1), keys.sub_(c).clamp_max(HEADROOM).exp_()
        c = keys.detach().amax(-2, keepdim=True)
        c = c.masked_fill(c.isinf(), 0.0)
        return queries.add_(c).softmax(-1), keys.sub_(c).exp_()


def draw(like: Float[Tensor, "f e"], orthogonal: bool) -> Float[Tensor, "f e"]:
    """Rows w_m ~ N(0, I_e), independent or in orthogonal blocks, by the default generator."""
    gaussian = torch.randn_like(like, dtype=torch.promote_types(like.dtype, torch.float32))
    if not orthogonal:
        return gaussian
    features, width = like.shape
    blocks = gaussian.new_empty(-(-features // width), width, width).normal_()
    rotations, triangles = torch.linalg.qr(blocks)
    # The signs that make a rotation uniform: QR alone fixes them by convention.
    rotations = rotations * triangles.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]
    return gaussian.norm(dim=-1, keepdim=True) * rotations.flatten(0, 1)[:features]
