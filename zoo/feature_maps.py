"""Feature maps of kernel attention: phi with kappa(q, k) = phi(q) . phi(k), by name.

Each is a function of vectors (..., p) to features (..., f), applied to queries and keys of a head:

    cosine       u / ||u||; the cosine of the angle of q and k (arXiv 2305.19798)
    exponential  softmax of the entries of u (Shen et al., "Efficient Attention", arXiv 1812.01243)
    relu         max(u, 0) / sqrt(p) (Kasai et al., "Finetuning Pretrained Transformers into RNNs",
                 arXiv 2103.13076, without its projection)
    elu          (elu(u) + 1) / sqrt(p) (Katharopoulos et al., arXiv 2006.16236)
    polynomial   the monomials of degree 2 of u / ||u||, so that kappa = cosine^2: the normalised
                 homogeneous polynomial kernel; f = p (p + 1) / 2 (Schoelkopf and Smola, "Learning
                 with Kernels", section 2.3)
    identity     u / sqrt(p), for kappa = q . k / p: the linear kernel

The factor 1 / sqrt(p) is ours: entries of size 1 give features of norm about 1, as `cosine` does,
and thus a KSVD loss of the same size. Monomials are of a unit vector because their square norm
grows with ||u||^4, and the KSVD loss with its square.

The zero vector has the features zero, except 1 / p each for `exponential` and 1 / sqrt(p) each for
`elu`. The caller sets the features of padded tokens to zero. Another map is one line:

    feature_maps.register("square")(lambda u: u.square())

or, by name in every command, an entry point of the group `zoo.feature_maps`.
"""

from collections.abc import Callable
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import AfterValidator
from torch import Tensor
from torch.nn import functional as F

from zoo.kernels.precision import TINY, full_precision
from zoo.registry import Registry, UserError

Vectors = Float[Tensor, "*any p"]
Features = Float[Tensor, "*any f"]
FeatureMap = Callable[[Tensor], Tensor]

# All feature maps by name: the maps of this module, and plug-ins.
feature_maps: Registry[FeatureMap] = Registry(
    "feature map", "zoo.feature_maps", group="zoo.feature_maps"
)


def _registered(name: str) -> str:
    try:
        feature_maps.find(name)
    except UserError as error:
        raise ValueError(f"cannot be used: {error}") from error
    return name


# The type of an option that names a feature map.
FeatureMapName = Annotated[str, AfterValidator(_registered)]


def width(name: str, p: int) -> int:
    """The number f of features of a vector of p entries."""
    shape = feature_maps.find(name)(torch.zeros(2, 3, p)).shape
    if len(shape) != 3 or shape[:2] != (2, 3) or not shape[2]:
        raise UserError(f"feature map {name!r} gives shape {tuple(shape)} for (2, 3, {p}); return "
                        "(2, 3, FEATURES)")  # fmt: skip
    return shape[2]


def apply(feature_map: FeatureMap, u: Vectors) -> Features:
    """The features of `u`, computed in fp32 at least, in the dtype of `u`."""
    with full_precision(u) as (exact,):
        return feature_map(exact).to(u.dtype)


@feature_maps.register("cosine")
def cosine(u: Vectors) -> Features:
    return F.normalize(u, dim=-1, eps=TINY)


@feature_maps.register("exponential")
def exponential(u: Vectors) -> Features:
    return u.softmax(-1)


@feature_maps.register("relu")
def relu(u: Vectors) -> Features:
    return u.relu() * u.shape[-1] ** -0.5


@feature_maps.register("elu")
def elu(u: Vectors) -> Features:
    # elu(u) + 1 as a sum would lose small features.
    return (u.clamp_max(0.0).exp() + u.relu()) * u.shape[-1] ** -0.5


@feature_maps.register("polynomial")
def polynomial(u: Vectors) -> Features:
    # v_i v_j for i <= j, times sqrt(2) where i < j.
    v, p = cosine(u), u.shape[-1]
    i, j = torch.triu_indices(p, p, device=u.device)
    return v[..., i] * v[..., j] * (1 + (i < j)).to(v.dtype).sqrt()


@feature_maps.register("identity")
def identity(u: Vectors) -> Features:
    return u * u.shape[-1] ** -0.5
