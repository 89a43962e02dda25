"""The subspaces that a layer of Primal-Attention spans, and the exact ones of its kernel matrix."""

import torch
from jaxtyping import Float
from torch import Tensor

from zoo import ksvd
from zoo.variants.primal import Primal
from zoo.variants.primal_forms import problem


def objective(layer: Primal, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b h"]:
    """J of each sample and head; the layer's loss is eta times the square of their mean."""
    phi, directions = problem(layer, x)
    e, r = (phi @ directions).unbind(1)
    energy = ksvd.energy_of_scores(e, r, layer.roots()) / x.shape[1]
    return energy - ksvd.trace(directions)


def bases(
    layer: Primal, x: Float[Tensor, "b n d"]
) -> tuple[Float[Tensor, "b c h f s"], Float[Tensor, "b c h f r"], Float[Tensor, "b h f g"]]:
    """Orthonormal bases of the scores, the first singular vectors of the kernel, and the kernel.

    They are coordinates in the span of the features of each side (c: query, key). The features are
    constants: only the weights have gradients.
    """
    phi, directions = problem(layer, x)
    phi = phi.detach()
    # K = Phi_q Phi_k^T = Q_q (R_q R_k^T) Q_k^T: its singular vectors are Q times vectors of a small
    # matrix, and scores are Q R W.
    r = torch.linalg.qr(phi)[1]
    kernel = r[:, 0] @ r[:, 1].mT
    u, _, vt = torch.linalg.svd(kernel)
    rank = min(directions.shape[-1], layer.features, x.shape[1])
    singular = torch.stack([u, vt.mT], dim=1)[..., :rank]
    return torch.linalg.qr(r @ directions)[0], singular, kernel


def alignments(layer: Primal, x: Float[Tensor, "b n d"]) -> tuple[float, float]:
    """Mean squared cosines of the principal angles of queries and of keys, over samples and heads.

    They are in [0, 1].
    """
    scores, singular, _ = bases(layer, x)
    squares = (scores.mT @ singular).square().sum((-2, -1)) / singular.shape[-1]
    left, right = squares.mean((0, 2)).clamp_max(1).tolist()
    return left, right


def reconstruction(layer: Primal, x: Float[Tensor, "b n d"]) -> Float[Tensor, ""]:
    """The mean share of the kernel's squared norm outside the spans of the scores, in [0, 1]."""
    scores, _, kernel = bases(layer, x)
    within = scores[:, 0].mT @ kernel @ scores[:, 1]
    shares = within.square().sum((-2, -1)) / kernel.square().sum((-2, -1))
    return 1 - shares.mean()
