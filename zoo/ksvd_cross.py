"""Cross-attention by asymmetric kernel SVD.

Let K = Phi_q Phi_k^T be the (n, m) kernel matrix of n tokens x, whose features are those of
queries, and m tokens c of the context, with those of keys. With its SVD K = U S V^T, the KKT
conditions of the objective give

    W_e = Phi_k^T V    e(x_i) = W_e^T phi(q(x_i))    the rows of K V = U S, one for each x
    W_r = Phi_q^T U    r(c_j) = W_r^T phi(k(c_j))    the rows of K^T U = V S, one for each c

In self-attention a token has a row in both. Here x has a row in the first alone, so the output is

    o(x) = C_e e(x) + c

The scores r could reach x through the kernel only, and add nothing at a solution: K r = K V S = e S
has the columns of e. They stay in the objective, which relates e to K through them:

    J = (sum_i e_i^T Lambda e_i + sum_j r_j^T Lambda r_j) / (2 sqrt(n m)) - Tr(W_e^T W_r)

Its derivatives are Phi_q^T e Lambda / nu - W_r and Phi_k^T r Lambda / nu - W_e, and both vanish at
the solution for Lambda = nu / S, if nu is the same in both. So the sums are not divided by n and m:
nu = sqrt(n m), which for n = m makes them the means of self-attention.

W_e is in the span of the features of the context: its data-dependent form is made of the sampled
tokens, or of the moments, of the context, and that of W_r of x. An output depends on its own x and
on the context, and not on the other x.

The contract has no mask for x: sums over x, and the W_r|X of the objective, include its padding.
Time O((n + m) p s) per head. The form is always computed with Gram matrices.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from zoo import ksvd
from zoo.contract import Attended, Context, Mask, Tokens, Unsupported
from zoo.kernels import cosine_map, sampled_tokens
from zoo.kernels.precision import full_precision
from zoo.kernels.real_tokens import token_ranks
from zoo.ksvd import Weights
from zoo.ksvd_attention import Features, KsvdAttention

KeyFeatures = Float[Tensor, "b m ch p"]


class KsvdCrossAttention(KsvdAttention):
    """Primal-Attention from tokens to a context that is not the tokens themselves."""

    def _cross(self, x: Tokens, context: Context, mask: Mask | None) -> Attended:
        """The output for each x, and while training the loss of the n x m kernel matrix."""
        if self.size.causal and x.shape[1] != context.shape[1]:
            raise Unsupported(
                f"causal {self.name()} got {x.shape[1]} queries and {context.shape[1]} keys; give "
                "as many keys as queries, which are the same tokens"
            )
        self._require_cross()
        phi_q, phi_k = self._features_of(x, None, 0), None
        if self.training or self.projections == "moments":
            phi_k = self._features_of(context, mask, 1)
        w_e = self._weights_of(context, mask, phi_k, 0)
        tokens = cosine_map.affine(phi_q, *self._output_map(w_e, slice(0, 1)))
        if not self.training or phi_k is None:
            return Attended(tokens)
        weights = torch.cat([w_e, self._weights_of(x, None, phi_q, 1)], dim=1)
        loss = self._cross_objective(phi_q, phi_k, weights, mask)
        return Attended(tokens, {"ksvd": self.eta * loss})

    def _features_of(self, tokens: Tokens, mask: Mask | None, side: int) -> Features:
        """Phi of the queries (side 0) or the keys (1) of tokens, zero where padded."""
        weight, bias = self.query_key.weight.chunk(2)[side], self.query_key.bias.chunk(2)[side]
        positions = None if mask is None else token_ranks(mask)
        return self._map_features(self._rotated(F.linear(tokens, weight, bias), positions), mask)

    def _weights_of(
        self, tokens: Tokens, mask: Mask | None, phi: Features | None, side: int
    ) -> Weights:
        """W_e|C (side 0) or W_r|X (1), from the tokens in whose span it is; phi their features."""
        directions = self.directions[side : side + 1]
        if phi is not None and self.projections == "moments":
            return self._moments(self._by_side(phi), tokens, mask, directions)
        return self._sampled(tokens, mask, sampled_tokens.plain, directions)[1]

    def _cross_objective(
        self, phi_q: Features, phi_k: KeyFeatures, weights: Weights, mask: Mask | None
    ) -> Float[Tensor, ""]:
        """J^2; `phi_k` is zero where the context is padded."""
        (_, n), (batch, m) = phi_q.shape[:2], phi_k.shape[:2]
        count = phi_k.new_full((batch,), m) if mask is None else mask.sum(1)
        grams = torch.cat([cosine_map.gram(phi_q), cosine_map.gram(phi_k)], dim=1)
        energy = ksvd.energy_of_grams(grams, weights, self.roots())
        with full_precision(weights) as (weights,):
            trace = ksvd.trace(weights if self.trace == "data" else self.directions[None])
        count = (n * count.to(energy.dtype)).sqrt()
        return ksvd.squared_objective(energy, trace, count, self.ksvd_mean)

    def _require_cross(self) -> None:
        """Raise `Unsupported` in the forms of which no output would depend on the context."""
        if self.size.causal:
            raise Unsupported(
                f"causal {self.name()} attends to its own input only; give causal=False"
            )
        if self.size.short_conv:
            raise Unsupported(
                f"{self.name()} has no cross-attention with short_conv={self.size.short_conv}; "
                "give short_conv=0"
            )
        if self.sides == "left":
            raise Unsupported(
                "primal.sides=left has no score of a token that is no key; give sides=right for "
                "cross-attention"
            )
        if self.projections == "independent":
            raise Unsupported(
                "primal.projections=independent gives outputs that do not depend on the context; "
                "give dependent for cross-attention, or the variant primal-moments"
            )
