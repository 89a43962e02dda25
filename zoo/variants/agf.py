"""AGF, attentive graph filter: linear attention with filtered singular values.

Wi, Choi, Park, "Learning Advanced Self-Attention for Linear Transformers in the Singular Value
Domain", IJCAI 2025, arXiv 2505.08516. Per head, with U, S, Vh and V linear in x:

    Q = softmax(U) over the features of a token       K = softmax(Vh) over the tokens
    out = (Q * P(sigmoid(S))) (K^T V)
    P(z) = 1 + sum_(k = 1 .. degree) tanh(theta_k) J_k(z)       J_k: Jacobi polynomials of (a, b)

U sigmoid(S) Vh^T has the form of a singular value decomposition; that Q and K are orthogonal is a
term of the training loss, reg (mean |Q^T Q - I| + mean |K^T K - I|), means over entries, heads and
samples. Time O(n e^2) and memory O(n e) per head.

theta is 0 at first, so that P = 1: a fresh layer, or one of degree 0, is Efficient Attention (Shen
et al., 2018, arXiv 1812.01243), and S has no gradient before the first step.

Deviations: padded tokens are in neither Q^T Q nor K^T K; the published code leaves them in the
first. The text of the paper writes U Sigma V^T, with a value for each feature; its code has one for
each token and feature, as here. The degree, a, b and reg of the paper differ by task: K = 4 to 6,
a = 1.5 to 2, b = -2 to 2, reg = 1e-4 to 1e-1; the defaults are for ListOps.
"""

from types import MappingProxyType
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from zoo.contract import Attended, Attention, Context, Mask, Matrix, Natural, Queries, Size, Tokens
from zoo.kernels.precision import full_precision
from zoo.kernels.real_tokens import token_ranks, zero_padding
from zoo.projection import ShortConvolution
from zoo.registry import UserError
from zoo.traits import Identity, Traits
from zoo.variants import variants

Parameter = Annotated[float, Field(ge=-2)]


@variants.register("agf")
class AttentiveGraphFilter(Attention):
    """Efficient attention whose features are multiplied by a polynomial of singular values.

    Args:
        degree: the degree of P; 0 for Efficient Attention, without S.
        a: the first parameter of the Jacobi polynomials; a + b is above -2.
        b: the second one.
        reg: the weight of the orthogonality in the training loss.
    """

    version = "1.0"
    family = "kernel"
    traits = Traits(
        causal=False, cross=False, linear=True, stochastic=False, recurrent=False,
        losses=("orthogonality",),
    )  # fmt: skip
    identities = (
        Identity(other="agf", where="theta = 0", other_options={"degree": 0}, exact=True),
    )
    expected_failures = MappingProxyType({
        "all parameters get gradients": "as published, theta starts at 0: of 7 parameters the two "
        "that give S have no gradient before the first step"
    })  # fmt: skip

    def __init__(
        self,
        size: Size,
        *,
        degree: Natural = 5,
        a: Parameter = 2.0,
        b: Parameter = -1.0,
        reg: Annotated[float, Field(ge=0)] = 0.01,
    ) -> None:
        super().__init__(size)
        if a + b <= -2:
            raise UserError(f"agf.a={a} and agf.b={b} have a sum of at most -2; raise either")
        self.degree, self.a, self.b, self.reg = degree, a, b, reg
        self.left_right_value = nn.Linear(size.dim, 3 * size.dim)
        self.left_right_value_conv = ShortConvolution(size, 3 * size.dim)
        self.out = nn.Linear(size.dim, size.dim)
        # Last: the degree does not change what a seed draws for the others.
        if degree:
            self.singular = nn.Linear(size.dim, size.dim)
            self.singular_conv = ShortConvolution(size, size.dim)
            self.theta = nn.Parameter(torch.zeros(degree))

    def forward(self, x: Tokens, context: Context | None = None, mask: Mask = None) -> Attended:
        with full_precision(*self._project(x, mask)) as (u, vh, v, *s):
            q, k, filtered = self._factors(mask, u, vh, *s)
            heads = filtered @ (k.mT @ v)
            loss = self.reg * (off_orthogonal(q) + off_orthogonal(k)) if self.training else None
        tokens = self.out(heads.transpose(1, 2).flatten(-2).to(x.dtype))
        return Attended(tokens) if loss is None else Attended(tokens, {"orthogonality": loss})

    @torch.no_grad()
    def matrix(self, x: Tokens, context: Context, mask: Mask) -> Matrix:
        self.require_context(x, context)
        with full_precision(*self._project(x, mask)) as (u, vh, _, *s):
            _, k, filtered = self._factors(mask, u, vh, *s)
            return filtered @ k.mT

    def polynomial(self, z: Queries) -> Queries:
        a, b = self.a, self.b
        before, last = torch.ones_like(z), (a - b + (a + b + 2) * z) / 2
        theta = self.theta.tanh()
        total = 1 + theta[0] * last
        for k in range(2, self.degree + 1):
            s, scale = 2 * k + a + b, 2 * k * (k + a + b)
            slope = s * (s - 1) / scale
            shift = (s - 1) * (a * a - b * b) / (scale * (s - 2))
            second = 2 * (k + a - 1) * (k + b - 1) * s / (scale * (s - 2))
            before, last = last, (slope * z + shift) * last - second * before
            total = total + theta[k - 1] * last
        return total

    def analytic_flops(self, n: int) -> int:
        # Projections, K^T V, and the product with it.
        dim, projections = self.size.dim, 5 if self.degree else 4
        return 2 * n * dim * (projections * dim + 2 * self.size.head_dim)

    def _factors(self, mask: Mask, u: Queries, vh: Queries, *s: Queries) -> list[Queries]:
        # Q, K, and Q times the filter.
        if mask is not None:
            # A finite minimum, then zeros: a sample without real tokens must not become NaN.
            vh = vh.masked_fill(~mask[:, None, :, None], torch.finfo(vh.dtype).min)
        q, k = (zero_padding(part, mask) for part in (u.softmax(-1), vh.softmax(-2)))
        return [q, k, q * self.polynomial(s[0].sigmoid()) if s else q]

    def _project(self, x: Tokens, mask: Mask) -> list[Queries]:
        # U, Vh, V and, unless the degree is 0, S of each head.
        projected = [*self.left_right_value_conv(self.left_right_value(x), mask).chunk(3, dim=-1)]
        projected += [self.singular_conv(self.singular(x), mask)] if self.degree else []
        u, vh, *rest = (p.unflatten(-1, (self.size.heads, -1)).transpose(1, 2) for p in projected)
        positions = token_ranks(mask) if self.size.rotary and mask is not None else None
        return [self.apply_rotary(u, positions), self.apply_rotary(vh, positions), *rest]


def off_orthogonal(x: Queries) -> Float[Tensor, ""]:
    distance = (x.mT @ x - torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)).abs()
    return distance.sum() / max(1, distance.numel())
