"""MesaNet: the minimum of a weighted regression of values on keys, for each token.

Von Oswald et al., "MesaNet: Sequence Modeling by Locally Optimal Test-Time Training", 2025, arXiv
2506.05233. With unit queries and keys, and per head

    H_i = alpha_i H_(i-1) + beta_i k_i k_i^T        G_i = alpha_i G_(i-1) + beta_i k_i v_i^T
    y_i = G_i^T (H_i + diag(lambda))^(-1) q_i
    alpha = sigmoid(w . x + b)    beta = sigmoid(u . x + c)    lambda = softplus(l) + 1/4

G_i^T (H_i + diag(lambda))^(-1) is the matrix M of least sum of weighted squares |v_j - M k_j|^2,
with the penalty lambda. The system of each token is solved directly, where the paper takes 30 steps
of the conjugate gradient: it has e equations. In chunks: H_i in full, y_i from the products x_i .
k_j with the solution x_i. Time O(n e^2 (chunk + e)), memory O(n e^2) per head, and a state of 2 e^2
numbers.

The convolution of `Size.short_conv` reads queries and keys, not values.

Deviations: gate, norm and output are as in `gated-linear`; the published layer has an RMS norm per
head, and no gate. Padded tokens are removed from the sequence.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Count, Mask, Positions, Queries, Size, State, Tokens, Traits
from zoo.gated import CausalHeads
from zoo.kernels.blocks import block_size, from_blocks, in_blocks
from zoo.kernels.chunk_states import chunk_states, from_state, pairwise_decay
from zoo.kernels.delta import sum_after
from zoo.kernels.precision import full_precision, without_autocast
from zoo.kernels.real_tokens import count_after, positions_after, zero_padding
from zoo.spans import SPANS
from zoo.variants import variants

Blocks = Float[Tensor, "b h t c e"]
Gates = Float[Tensor, "b h n 1"]
LOWEST = 0.25
"""The lower bound of lambda."""

GROUP = 16
"""Chunks whose systems are in memory at a time."""


@variants.register("mesa")
class Mesa(CausalHeads):
    """The value that a regression of all values so far predicts at the query."""

    family = "delta rule"
    traits = Traits.causal_only(linear=True, stochastic=False, recurrent=True)
    spans = 2 * SPANS

    def __init__(self, size: Size, *, chunk: Count = 32) -> None:
        """`chunk`: tokens of a chunk; the result does not depend on it."""
        super().__init__(size, plain=size.dim)
        self.chunk = chunk
        self.gates = nn.Linear(size.dim, 2 * size.heads)
        # lambda starts at 1.
        self.penalty = nn.Parameter(torch.full((size.dim,), 1 - LOWEST).expm1().log())
        self.make_output()

    def attend(self, x: Tokens) -> Queries:
        """See `CausalHeads.attend`."""
        inputs = self._project(x, self.query_key_value(x))
        with without_autocast(x):
            return regress(*inputs, self._penalty(inputs[0]), self.chunk)[0]

    def start(self, batch: int) -> State:
        """See `Attention.start`: H and G of each head, and the number of tokens."""
        sums, *rest = super().start(batch)
        return torch.cat([sums, sums], dim=-1), *rest

    def extend(self, x: Tokens, real: Mask | None, state: State) -> tuple[Tokens, State]:
        """See `Attention.extend`."""
        (sums, count, *past), n = state, x.shape[1]
        projected, past = self.query_key_value.extend(x, tuple(past), real)
        q, k, v, log_alpha, beta = self._project(x, projected, positions_after(count, n))
        penalty = self._penalty(q)
        with without_autocast(x):
            if n == 1 and real is None:
                sums = log_alpha.exp() * sums + (beta * k).mT * torch.cat([k, v], dim=-1)
                h, g = sums.chunk(2, dim=-1)
                heads = torch.linalg.solve(h + penalty.diag_embed(), q.mT).mT @ g
            else:
                # A padded token neither decays the sums nor is added.
                log_alpha, beta = (zero_padding(part, real) for part in (log_alpha, beta))
                heads, sums = regress(q, k, v, log_alpha, beta, penalty, self.chunk, sums)
        return self.merge(x, heads), (sums, count_after(count, n, real), *past)

    def _penalty(self, q: Queries) -> Float[Tensor, "h e"]:
        """Lambda of each head and channel."""
        penalty = F.softplus(self.penalty.to(q.dtype)) + LOWEST
        return penalty.unflatten(0, (self.size.heads, -1))

    def _project(
        self, x: Tokens, projected: Tensor, positions: Positions | None = None
    ) -> tuple[Queries, Queries, Queries, Gates, Gates]:
        """Unit queries and keys, values, the logarithms of alpha, and beta."""
        # fp32 at least: sums over many tokens, and the solution of a system.
        with full_precision(projected, self.gates(x)) as (u, gates):
            q, k, v = u.unflatten(-1, (3, self.size.heads, -1)).permute(2, 0, 3, 1, 4)
            alpha, beta = gates.unflatten(-1, (2, self.size.heads, 1)).permute(2, 0, 3, 1, 4)
            q, k = (self.apply_rotary(F.normalize(x, dim=-1), positions) for x in (q, k))
            return q, k, v, F.logsigmoid(alpha), beta.sigmoid()


def regress(
    q: Queries, k: Queries, v: Queries, log_alpha: Gates, beta: Gates,
    penalty: Float[Tensor, "h e"], chunk: int, state: Tensor | None = None,
) -> tuple[Queries, Any]:  # fmt: skip
    """The outputs y_i, after [H, G] of tokens before if any; and then [H, G] after the last."""
    n, width = q.shape[2], q.shape[3]
    chunk = block_size(chunk, n)
    q, k, v, log_alpha, beta = (in_blocks(part, chunk) for part in (q, k, v, log_alpha, beta))
    weighted = beta * k
    update = (weighted * sum_after(log_alpha).exp()).mT @ torch.cat([k, v], dim=-1)
    decays = log_alpha.sum(-2, keepdim=True).exp()
    states, state = from_state(chunk_states, decays, update, state)
    h, g = states.split([width, v.shape[-1]], dim=-1)
    decay, since = pairwise_decay(log_alpha), log_alpha.cumsum(-2).exp()
    parts = zip(*(part.split(GROUP, 2) for part in (q, weighted, k, decay, since, h)), strict=True)
    solutions = torch.cat([_Solve.apply(*part, penalty)[0] for part in parts], 2)
    sums = (solutions @ weighted.mT * decay) @ v + (solutions * since) @ g
    return from_blocks(sums, n), state


def _systems(
    weighted: Blocks, k: Blocks, decay: Float[Tensor, "b h t c c"],
    since: Float[Tensor, "b h t c 1"], h: Float[Tensor, "b h t e e"], penalty: Tensor,
) -> Float[Tensor, "b h t c e e"]:  # fmt: skip
    """H_i + diag(lambda) of each token: of the tokens of its chunk up to it and of those before."""
    squares = (weighted[..., None] * k[..., None, :]).flatten(-2)
    systems = (decay @ squares).unflatten(-1, (k.shape[-1],) * 2)
    systems.addcmul_(since[..., None], h[:, :, :, None])
    systems.diagonal(dim1=-2, dim2=-1).add_(penalty[:, None, None])
    return systems


class _Solve(torch.autograd.Function):
    """The solutions x_i of the systems S_i x_i = q_i, and the factors of S_i.

    The gradient of S_i is -y_i x_i^T, where S_i^T y_i is the gradient of x_i. It has rank one:
    gradients of what S_i is made from are products within a chunk, without a matrix of each token.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        q: Blocks, weighted: Tensor, k: Tensor, decay: Tensor, since: Tensor, h: Tensor,
        penalty: Tensor,
    ) -> tuple[Blocks, Tensor, Tensor]:  # fmt: skip
        """Solve; for the arguments behind the first see `_systems`."""
        systems = _systems(weighted, k, decay, since, h, penalty)
        factors, pivots, _ = torch.linalg.lu_factor_ex(systems)
        return torch.linalg.lu_solve(factors, pivots, q[..., None])[..., 0], factors, pivots

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        """Keep the solutions and the factors for the gradient."""
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, ...]:
        """The gradients of the inputs."""
        gradient, *_ = gradients
        q, weighted, k, decay, since, h, penalty, x, factors, pivots = ctx.saved_tensors
        if torch.is_grad_enabled():
            # They are differentiated again: by the definition.
            again = torch.linalg.solve(_systems(weighted, k, decay, since, h, penalty), q)
            inputs = q, weighted, k, decay, since, h, penalty
            return torch.autograd.grad(again, inputs, gradient, create_graph=True)
        y = torch.linalg.lu_solve(factors, pivots, gradient[..., None], adjoint=True)[..., 0]
        of_weighted, of_keys = y @ weighted.mT, x @ k.mT
        return (
            y,
            -(decay * of_keys).mT @ y,
            -(decay * of_weighted).mT @ x,
            -of_weighted * of_keys,
            -((y @ h) * x).sum(-1, keepdim=True),
            -(since * y).mT @ x,
            -(x * y).sum((0, 2, 3)),
        )
