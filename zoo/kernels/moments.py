"""Cross moments of features and tokens, and the scores of causal KSVD that come from them.

The projections of `zoo.variants.primal_moments`, of the first n tokens:

    W_e|X(n) = 1/n sum_{i <= n} phi_k(i) x_i^T W_e
    W_r|X(n) = 1/n sum_{i <= n} phi_q(i) x_i^T W_r

A later token changes no earlier score; see `zoo.kernels.causal_sum`. Time O(n f s) and memory
O(n (f + s)) per head; a step takes O(f s).

Axis letters beyond the contract's: `c` the two sides (query, key), `f` features, `p` width of a
head's tokens, `s` rank.
"""

from jaxtyping import Float, Shaped
from torch import Tensor

from zoo.kernels import causal_sum

Features = Float[Tensor, "b c h n f"]
HeadTokens = Float[Tensor, "b h n p"]
Directions = Float[Tensor, "c h p s"]
Scores = Float[Tensor, "b h n s"]
Counts = Shaped[Tensor, "#b n"]

CHUNK = 64
"""Tokens of a causal block; the result does not depend on it, and 64 is the fastest on a CPU."""


def of_all(
    features: Float[Tensor, "b c h n f"], x: HeadTokens, count: Shaped[Tensor, " b"]
) -> Float[Tensor, "b c h f p"]:
    """The mean over `count` tokens of features x^T; features are zero where padded."""
    count = count.clamp_min(1).to(x.dtype)
    return features.mT @ x[:, None] / count[:, None, None, None, None]


def causal_scores(
    features: Features, x: HeadTokens, directions: Directions, count: Counts, plain: bool
) -> tuple[Scores, Scores, Float[Tensor, "b h n"]]:
    """The scores e and r of each token under the projections of the tokens up to it; and traces.

    Args:
        features: phi_q and phi_k, zero where padded.
        x: the tokens, split in heads.
        directions: W_e and W_r.
        count: the number of real tokens up to each token.
        plain: with all n x n weights, the definition, and not in chunks.

    Returns:
        e_n = phi_q(n)^T W_e|X(n), r_n = phi_k(n)^T W_r|X(n) and Tr(W_e|X(n)^T W_r|X(n)).
    """
    phi_q, phi_k = features.unbind(1)
    a, b = (x[:, None] @ directions).unbind(1)
    total = causal_sum.plain if plain else _chunked
    e, r = total(phi_q, phi_k, a), total(phi_k, phi_q, b)
    # n^2 Tr_n is a sum over i, j <= n of kappa(j, i) (a_i . b_j): token n adds a row and a column.
    own = (phi_q * phi_k).sum(-1) * (a * b).sum(-1)
    added = (e * b).sum(-1) + (r * a).sum(-1) - own
    count = count.clamp_min(1)[:, None].to(e.dtype)
    return e / count[..., None], r / count[..., None], added.cumsum(-1) / count.square()


def _chunked(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return causal_sum.chunked(queries, keys, values, CHUNK)


def step(
    features: Float[Tensor, "b c h 1 f"],
    x: Float[Tensor, "b h 1 p"],
    directions: Directions,
    count: Shaped[Tensor, " b"],
    sums: Float[Tensor, "b c h f s"],
) -> tuple[Float[Tensor, "b c h 1 s"], Float[Tensor, "b c h f s"]]:
    """The scores (e, r) of token number `count`, and the sums over the tokens up to it."""
    sums = sums + features.flip(1).mT * (x[:, None] @ directions)
    return features @ sums / count.to(sums.dtype)[:, None, None, None, None], sums
