"""Asymmetric kernel SVD: the objective J of Primal-Attention.

With e = W_e^T phi_q and r = W_r^T phi_k the scores of queries and keys (`zoo.variants.primal`),

    J = 1/2 mean e^T Lambda e + 1/2 mean r^T Lambda r - Tr(W_e^T W_r)

Lambda is diagonal and positive; `roots` are the square roots of its diagonal, by which scores are
multiplied. Chen et al., NeurIPS 2023, arXiv 2305.19798; `docs/primal.md` derives J, and states what
J = 0 implies.

Axis letters beyond the contract's: `p` features, `c` the two sides (query, key), `s` rank.
"""

from typing import Literal

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from zoo.kernels.precision import full_precision

Weights = Float[Tensor, "#b c h p s"]
Scales = Float[Tensor, "h s"]
Grams = Float[Tensor, "samples ch p p"]
Scores = Float[Tensor, "samples h n s"]
Directions = Float[Tensor, "c h a s"]
# Half the sum over tokens of e^T Lambda e + r^T Lambda r; (0, h) in evaluation, without J.
Energy = Float[Tensor, "samples h"]

# What J is a mean over before it is squared; see `squared_objective`.
KsvdMean = Literal["batch", "sample"]


def initialise(directions: Directions, orthonormal: bool = False, factor: float = 1.0) -> None:
    # Fill the directions of each side with a tensor of Frobenius norm 1 per head, times `factor`.
    # `orthonormal` gives each head orthonormal columns instead, or rows where those are fewer.
    for side in directions:
        # Of (h, a, s) PyTorch makes (h, a s) with orthonormal rows. Orthonormal columns of each
        # head would be sqrt(s) times larger, and their loss would dominate training.
        for part in side if orthonormal else [side]:
            nn.init.orthogonal_(part)
    directions.mul_(factor)


def energy_of_grams(grams: Grams, weights: Weights, roots: Scales) -> Energy:
    with full_precision(grams, weights) as (grams, weights):
        scaled = weights[: grams.shape[0]] * roots[:, None, :]
        # sum_n ||e_n * Lambda^(1/2)||^2 = Tr(Lambda^(1/2) W^T G W Lambda^(1/2))
        return (grams.unflatten(1, (2, -1)) @ scaled).mul(scaled).sum((1, 3, 4)) / 2


def energy_of_scores(e: Scores, r: Scores, roots: Scales) -> Energy:
    squares = [(side * roots[:, None, :]).square().sum((-2, -1)) for side in (e, r)]
    return (squares[0] + squares[1]) / 2


def trace(weights: Weights) -> Float[Tensor, "#b h"]:
    return (weights[:, 0] * weights[:, 1]).sum((-2, -1))


def squared_objective(
    energy: Energy,
    trace: Float[Tensor, "#samples h"],
    count: Shaped[Tensor, " samples"],
    mean: KsvdMean,
) -> Float[Tensor, ""]:
    # `batch` averages over samples, heads and tokens, and squares; `sample` averages over heads and
    # tokens of each sample, squares, and averages over samples. A mean over no samples is 0.
    if mean == "batch":
        mean_trace = trace.sum(0) / max(1, len(trace))
        return (energy.sum(0) / count.sum().clamp_min(1) - mean_trace).mean().square()
    squares = (energy / count[:, None].clamp_min(1) - trace).mean(1).square()
    return squares.sum() / max(1, len(squares))
