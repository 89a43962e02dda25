"""The forms of Primal-Attention that were not published.

* `feature_map`: another phi (`zoo.feature_maps`), of f features in place of p. Where f differs from
  p, X_s has the features of the sampled tokens.
* `sides`: e or r alone in the output. J keeps both sides. Singular vectors are defined in pairs,
  K v = s u and K^T u = s v: without r nothing in J relates e to K, and its minimum is e = 0.
* `lambda_form`: Lambda^2 of the paper is a positive diagonal; here others are so by construction.
* Cross-attention, of n tokens x to the m tokens of a context: o(x) = C_e e(x) + c, and

      J = (sum_i e_i^T Lambda e_i + sum_j r_j^T Lambda r_j) / (2 sqrt(n m)) - Tr(W_e^T W_r)

  with r the scores of the context. W_e is in the span of the features of the context: it is made of
  sampled tokens, or moments, of the context, and W_r likewise of x. Sums over x, and W_r|X, include
  its padding, for which the contract has no mask. Time O((n + m) p s) per head, always with Gram
  matrices. `docs/decisions/primal.md` derives it.
"""

from functools import partial
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import feature_maps, ksvd
from zoo.contract import Attended, Context, Mask, Matrix, Tokens, Unsupported
from zoo.feature_maps import FeatureMap
from zoo.kernels import cosine_map
from zoo.kernels.cosine_map import Features
from zoo.kernels.precision import full_precision
from zoo.kernels.real_tokens import token_ranks
from zoo.ksvd import Scales, Weights

if TYPE_CHECKING:
    import zoo.variants.primal

Vectors = Float[Tensor, "b n ch width"]
BySide = Float[Tensor, "b c h n p"]

# Lambda from its parameters: their square (published), exponential or softplus; or fixed at 1.
LambdaForm = Literal["squared", "exponential", "softplus", "fixed"]

# The sides that the output has, of (e, r).
SIDES = {"both": slice(0, 2), "right": slice(0, 1), "left": slice(1, 2)}

SMALLEST = 2.0**-10  # The smallest initial root of Lambda in the forms `exponential` and `softplus`


def initial_scales(heads: int, rank: int, form: LambdaForm) -> nn.Parameter | nn.Buffer:
    # The roots of Lambda are uniform in [0, 1), or all 1 in the form `fixed`.
    roots = torch.rand(heads, rank)
    if form == "fixed":
        return nn.Buffer(torch.ones_like(roots), persistent=False)
    if form == "exponential":
        roots = 2 * roots.clamp_min(SMALLEST).log()
    if form == "softplus":
        roots = roots.clamp_min(SMALLEST).square().expm1().log()
    return nn.Parameter(roots)


def roots(scales: Scales, form: LambdaForm) -> Scales:
    # Up to their sign in the form `squared`.
    if form == "exponential":
        return (scales / 2).exp()
    return F.softplus(scales).sqrt() if form == "softplus" else scales


def features(phi: FeatureMap, u: Vectors, mask: Mask) -> Features:
    if phi is feature_maps.cosine:
        return cosine_map.unit(u, mask)
    mapped = feature_maps.apply(phi, u)
    return mapped if mask is None else mapped.masked_fill(~mask[:, :, None, None], 0.0)


def by_side(phi: Features, heads: int) -> BySide:
    return phi.unflatten(2, (-1, heads)).permute(0, 2, 3, 1, 4)


def are_plain(*modules: nn.Module) -> bool:
    # Not with a hook, a subclass, such as a parametrisation, or another class of weights, such as
    # quantised ones: then a call may be another product.
    return all(
        type(module) is nn.Linear
        and type(module.weight) in (nn.Parameter, Tensor)
        and "forward" not in vars(module)
        and not any(hooks for name, hooks in vars(module).items() if name.endswith("_hooks"))
        for module in modules
    )


def cross_attention(
    layer: "zoo.variants.primal.Primal", x: Tokens, context: Context, mask: Mask
) -> Attended:
    # While training with the loss of the n x m kernel matrix.
    _require_cross(layer)
    heads, (of_e, of_r) = layer.size.heads, layer.directions.split(1)
    phi_q, phi_k, span = side_features(layer, x, None, 0), None, None
    if layer.training or layer.by_features:
        phi_k = side_features(layer, context, mask, 1)
        span = by_side(phi_k, heads)
    w_e = layer.weights(context, mask, of_e, span=span)
    tokens = layer.output(phi_q, w_e)
    if not layer.training or phi_k is None:
        return Attended(tokens)
    w_r = layer.weights(x, None, of_r, span=by_side(phi_q, heads))
    weights = torch.cat([w_e, w_r], dim=1)
    grams = torch.cat([cosine_map.gram(phi_q), cosine_map.gram(phi_k)], dim=1)
    energy = ksvd.energy_of_grams(grams, weights, layer.roots())
    # The same divisor for both sums, or J is not stationary at the solution.
    count = (x.shape[1] * token_count(context, mask).to(energy.dtype)).sqrt()
    return Attended(tokens, layer.losses(energy, weights, count))


def token_count(x: Tokens, mask: Mask) -> Shaped[Tensor, " b"]:
    return x.new_full(x.shape[:1], x.shape[1]) if mask is None else mask.sum(1)


def side_features(
    layer: "zoo.variants.primal.Primal", tokens: Tokens, mask: Mask, side: int
) -> Features:
    positions = None if mask is None else token_ranks(mask)
    if are_plain(layer.query_key):
        weight, bias = layer.query_key.weight.chunk(2)[side], layer.query_key.bias.chunk(2)[side]
        projected = F.linear(tokens, weight, bias)
    else:
        projected = layer.query_key(tokens).chunk(2, dim=-1)[side]
    return features(layer.phi, layer.rotated(projected, positions), mask)


def _require_cross(layer: "zoo.variants.primal.Primal") -> None:
    # In these forms no output would depend on the context.
    independent = layer.projections == "independent"
    reasons = {
        f"causal {layer.name()} attends to its input only; give causal=False": layer.size.causal,
        "primal.sides=left has no score of a token that is no key; give sides=right for "
        "cross-attention": layer.sides == "left",
        "primal.projections=independent gives outputs that do not depend on the context; give "
        "dependent for cross-attention, or the variant primal-moments": independent,
    }
    if reason := next((reason for reason, applies in reasons.items() if applies), ""):
        raise Unsupported(reason)


def kernel_matrix(
    layer: "zoo.variants.primal.Primal", x: Tokens, context: Context, mask: Mask
) -> Matrix:
    if context is not x:
        sides = (x, None, 0), (context, mask, 1)
        phi_q, phi_k = (side_features(layer, *side).transpose(1, 2) for side in sides)
        return phi_q @ phi_k.mT
    with full_precision(layer.queries_and_keys(x, mask)) as (u,):
        phi_q, phi_k = by_side(features(layer.phi, u, mask), layer.size.heads).unbind(1)
        return phi_q @ phi_k.mT


def problem(
    layer: "zoo.variants.primal.Primal", x: Tokens
) -> tuple[Float[Tensor, "b c h n f"], Weights]:
    """Features and weights whose objective is J, at tokens without padding.

    J = energy of features @ weights / n - Tr(W_e^T W_r). With `trace=weights` these are W_e and
    W_r, and the features are multiplied by what makes W_e|X and W_r|X of them: statement 15 of
    `docs/primal.md`.
    """
    phi = by_side(features(layer.phi, layer.queries_and_keys(x, None), None), layer.size.heads)
    # W_e is in the span of the features of keys, W_r in the span of the features of queries.
    weights = partial(layer.weights, x, None, span=phi.flip(1))
    if layer.trace == "data":
        return phi, weights(layer.directions)
    rows = torch.eye(layer.directions.shape[2], dtype=x.dtype, device=x.device)
    return phi @ weights(rows.expand(2, layer.size.heads, -1, -1)), layer.directions[None]
