"""MesaNet: the minimum of a weighted regression of values on keys, for each token.

Von Oswald et al., "MesaNet: Sequence Modeling by Locally Optimal Test-Time Training", 2025, arXiv
2506.05233. With unit queries and keys, and per head

    H_i = alpha_i H_(i-1) + beta_i k_i k_i^T        G_i = alpha_i G_(i-1) + beta_i k_i v_i^T
    y_i = G_i^T (H_i + diag(lambda))^(-1) q_i
    alpha = sigmoid(w . x + b)    beta = sigmoid(u . x + c)    lambda = softplus(l) + 1/4

G_i^T (H_i + diag(lambda))^(-1) is the matrix M of least sum of weighted squares |v_j - M k_j|^2,
with the penalty lambda. The system of each token is solved directly, where the paper takes 30 steps
of the conjugate gradient: it has e equations. The output is the sum of (x_i . beta_j k_j) v_j,
decayed, with the solution x_i: a recurrence (`zoo.kernels.recurrence`). On a CPU a compiled loop
solves the systems, in time O(n e^3) and memory O(n e) per head; elsewhere they are made in chunks,
in time O(n e^2 (chunk + e)) and memory O(n e^2). A state has 2 e^2 numbers.

The convolution of `Size.short_conv` reads queries and keys, not values.

Deviations: gate, norm and output are as in `gated-linear`; the published layer has an RMS norm per
head, and no gate. Padded tokens are removed from the sequence.
"""

from functools import partial
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula

from zoo.contract import Count, Mask, Positions, Queries, Size, State, Tokens, Traits
from zoo.gated import CausalHeads
from zoo.kernels import eager
from zoo.kernels.blocks import block_size, from_blocks, in_blocks
from zoo.kernels.chunk_states import chunk_states, from_state, pairwise_decay
from zoo.kernels.delta import chunks_after, sum_after
from zoo.kernels.precision import full_precision, without_autocast
from zoo.kernels.real_tokens import count_after, positions_after, zero_padding
from zoo.kernels.recurrence import by_token, can_run, token_sums_after
from zoo.kernels.threads import share
from zoo.recurrent import loops_or_chunks
from zoo.variants import variants

Blocks = Float[Tensor, "b h t c e"]
Gates = Float[Tensor, "b h n 1"]
Sums = Float[Tensor, "b h e e"]
LOWEST = 0.25  # The lower bound of lambda
GROUP = 16  # Chunks whose systems are in memory at a time


@variants.register("mesa")
class Mesa(CausalHeads):
    """The value that a regression of all values so far predicts at the query."""

    version = "2.0"
    family = "delta rule"
    traits = Traits.causal_only(linear=True, stochastic=False, recurrent=True)
    spans = 0
    backend_for = loops_or_chunks

    def __init__(self, size: Size, *, chunk: Count = 32) -> None:
        """`chunk`: tokens of a chunk; the result does not depend on it."""
        super().__init__(size, plain=size.dim)
        self.chunk = chunk
        self.gates = nn.Linear(size.dim, 2 * size.heads)
        # lambda starts at 1.
        self.penalty = nn.Parameter(torch.full((size.dim,), 1 - LOWEST).expm1().log())
        self.make_output()

    def attend(self, x: Tokens) -> Queries:
        inputs = self._project(x, self.short_conv(self.query_key_value(x)))
        with without_autocast(x):
            return regress(*inputs, self._penalty(inputs[0]), self.chunk)[0]

    def start(self, batch: int) -> State:
        # H and G of each head, and the number of tokens.
        sums, *rest = super().start(batch)
        return torch.cat([sums, sums], dim=-1), *rest

    def extend(self, x: Tokens, real: Mask, state: State) -> tuple[Tokens, State]:
        (sums, count, *past), n = state, x.shape[1]
        projected, past = self.short_conv.extend(self.query_key_value(x), tuple(past), real)
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
        penalty = F.softplus(self.penalty.to(q.dtype)) + LOWEST
        return penalty.unflatten(0, (self.size.heads, -1))

    def _project(
        self, x: Tokens, projected: Tensor, positions: Positions | None = None
    ) -> tuple[Queries, Queries, Queries, Gates, Gates]:
        # fp32 at least: sums over many tokens, and the solution of a system.
        with full_precision(projected, self.gates(x)) as (u, gates):
            q, k, v = u.unflatten(-1, (3, self.size.heads, -1)).permute(2, 0, 3, 1, 4)
            alpha, beta = gates.unflatten(-1, (2, self.size.heads, 1)).permute(2, 0, 3, 1, 4)
            q, k = (self.apply_rotary(F.normalize(x, dim=-1), positions) for x in (q, k))
            return q, k, v, F.logsigmoid(alpha), beta.sigmoid()


def regress(
    q: Queries, k: Queries, v: Queries, log_alpha: Gates, beta: Gates,
    penalty: Float[Tensor, "h e"], chunk: int, state: Tensor | None = None,
) -> tuple[Queries, Tensor]:  # fmt: skip
    # The outputs y_i, and [H, G] after the last token; `state` is that before the first, or 0.
    width = q.shape[-1]
    state = q.new_zeros(*q.shape[:2], width, 2 * width) if state is None else state
    (h, g), weighted = state.chunk(2, dim=-1), beta * k
    inputs, definition = (h, q, k, weighted, log_alpha, penalty), partial(solve, chunk=chunk)
    compiled = can_run(*inputs)
    x, h = _Solutions.apply(*inputs) if compiled else definition(*inputs)
    sums, g = token_sums_after(partial(chunks_after, chunk=chunk), g, x, weighted, v, log_alpha)
    return sums, torch.cat([h, g], dim=-1)


def solve(
    h: Sums, q: Queries, k: Queries, weighted: Queries, log_alpha: Gates,
    penalty: Float[Tensor, "h e"], chunk: int,
) -> tuple[Queries, Sums]:  # fmt: skip
    n = q.shape[2]
    chunk = block_size(chunk, n)
    q, k, weighted, log_alpha = (in_blocks(part, chunk) for part in (q, k, weighted, log_alpha))
    update = (weighted * sum_after(log_alpha).exp()).mT @ k
    states, end = from_state(chunk_states, log_alpha.sum(-2, keepdim=True).exp(), update, h)
    decay, since = pairwise_decay(log_alpha), log_alpha.cumsum(-2).exp()
    parts = zip(*(x.split(GROUP, 2) for x in (q, weighted, k, decay, since, states)), strict=True)
    solutions = torch.cat([_Solve.apply(*part, penalty)[0] for part in parts], 2)
    return from_blocks(solutions, n), h if end is None else end


class _Solutions(torch.autograd.Function):
    # `solve` by compiled loops, which keep no system: the backward pass makes them again.
    # The gradient of S_i is -y_i x_i^T, where y_i solves S_i y_i = d x_i. The other gradients are
    # the negative ones of the recurrence y_i . (H_i x_i).

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        h, q, k, weighted, log_alpha, penalty = inputs
        x, end = torch.ops.zoo.solutions(h, q, k, weighted, log_alpha, penalty)
        ctx.save_for_backward(*inputs, x)
        return x, end

    @staticmethod
    @eager.differentiable_once("the systems of mesa")
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, saved: tuple[Any, ...], d_x: Tensor, d_end: Tensor
    ) -> tuple[Tensor | None, ...]:
        *inputs, x = saved
        h, _, k, weighted, log_alpha, penalty = inputs
        y = torch.ops.zoo.solutions(h, d_x, k, weighted, log_alpha, penalty)[0]
        d_h, _, d_k, d_weighted, d_decay = torch.ops.zoo.token_sums_backward(
            -y, [x, k, weighted, log_alpha], h.new_empty(0), True, h.mT, d_end.mT
        )
        d_log_alpha = d_decay.sum(-1, keepdim=True)
        return d_h.mT, y, d_k, d_weighted, d_log_alpha, -(x * y).sum((0, 2))


@torch.library.custom_op("zoo::solutions", mutates_args=())
def _solutions(
    h: Tensor, q: Tensor, k: Tensor, weighted: Tensor, log_alpha: Tensor, penalty: Tensor
) -> tuple[Tensor, Tensor]:
    # Compilers take a while to import, and other variants need none.
    from zoo.kernels.recurrence_loops import write_solutions

    ends, tokens = h.flatten(0, 1).clone(), [by_token(x) for x in (q, k, weighted)]
    out, decay = torch.empty_like(tokens[0]), log_alpha.double().exp().transpose(1, 2)
    arrays = [x.detach().numpy() for x in (*tokens, decay.expand_as(out), penalty, out, ends)]
    share(write_solutions, len(ends), 1, *arrays)
    return out.transpose(1, 2), ends.view_as(h)


@register_flop_formula(torch.ops.zoo.solutions)
def _flops(h: Any, q: Any, *_: Any, **__: Any) -> int:
    # H is decayed and added to; a third of e^3 steps of elimination, and two of substitution.
    width = q[-1]
    return prod(q) * (4 * width + width**2 // 3 + 2 * width)


class _Solve(torch.autograd.Function):
    # The solutions x_i of the systems S_i x_i = q_i, and the factors of S_i.
    # The gradient of S_i is -y_i x_i^T, where S_i^T y_i is the gradient of x_i. It has rank one:
    # gradients of what S_i is made from are products within a chunk, without a matrix of each
    # token.

    generate_vmap_rule = True

    @staticmethod
    def forward(
        q: Blocks, weighted: Tensor, k: Tensor, decay: Tensor, since: Tensor, h: Tensor,
        penalty: Tensor,
    ) -> tuple[Blocks, Tensor, Tensor]:  # fmt: skip
        # H_i + diag(lambda) of each token: of the tokens of its chunk up to it and of those before.
        systems = decay @ (weighted[..., None] * k[..., None, :]).flatten(-2)
        systems = systems.unflatten(-1, (k.shape[-1],) * 2)
        systems.addcmul_(since[..., None], h[:, :, :, None])
        systems.diagonal(dim1=-2, dim2=-1).add_(penalty[:, None, None])
        factors, pivots, _ = torch.linalg.lu_factor_ex(systems)
        return torch.linalg.lu_solve(factors, pivots, q[..., None])[..., 0], factors, pivots

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs[1:], *output)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, ...]:
        gradient, *_ = gradients
        weighted, k, decay, since, h, penalty, x, factors, pivots = ctx.saved_tensors
        if torch.is_grad_enabled():
            # It is differentiated again: the transposed systems, not constant factors.
            y = _Solve.apply(gradient, k, weighted, decay, since, h.mT, penalty)[0]
        else:
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
