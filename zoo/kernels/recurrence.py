"""Sums over tokens, weighted by products that decay with the distance, token by token on a CPU.

With a_i in (0, 1]^e for each token and head,

    causal:      y_i = sum_{j <= i} (q_i . (a_(j+1) ... a_i k_j)) v_j
    otherwise:   y_i plus sum_{j > i} (q_i . (a_i ... a_(j-1) k_j)) v_j

The state of a head, S_i = diag(a_i) S_(i-1) + k_i v_i^T, stays in the cache of a processor. The
backward pass runs the recurrence again for the gradient of q, and the reversed one for those of k
and v; that of log a_i is the sum of q_j d q_j - k_j d k_j over j >= i (Yang et al., 2023, arXiv
2312.06635). Nothing is divided by a product of decays. Only the inputs are stored. Time
O(n e^2), memory O(n e) per head.

For eager execution on a CPU; elsewhere a variant has a form in chunks, which is its definition too.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from zoo.contract import Queries
from zoo.kernels import eager
from zoo.kernels.threads import as_array, share

DTYPES = (torch.float32, torch.float64)

LogDecay = Float[Tensor, "#b h #n #e"]

Definition = Callable[..., Tensor]


def decayed_sum(
    q: Queries, k: Queries, v: Queries, log_decay: LogDecay, causal: bool, definition: Definition
) -> Queries:
    """The sums y_i; `definition` computes the same from (q, k, v, log_decay).

    It is used where this cannot run, and for derivatives of gradients.
    """
    parts = q, k, v, log_decay
    if not all(eager.on_cpu(x) and type(x) is Tensor and x.dtype in DTYPES for x in parts):
        return definition(*parts)
    # Copies of what is part of a larger tensor, which then is not stored.
    tokens = (by_token(x).transpose(1, 2) for x in (q, k, v))
    return _DecayedSum.apply(definition, causal, *tokens, log_decay)


class _DecayedSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, definition: Definition, causal: bool,
        q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor,
    ) -> Tensor:  # fmt: skip
        ctx.definition, ctx.causal = definition, causal
        ctx.save_for_backward(q, k, v, log_decay)
        return torch.ops.zoo.decayed_sum(q, k, v, log_decay, causal)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        if torch.is_grad_enabled():
            out = ctx.definition(*saved)
            return None, None, *eager.differentiable(out, saved, gradient)
        run = torch.ops.zoo.decayed_sum_backward
        *gradients, d_decay = run(gradient, *saved, ctx.causal)
        needed = ctx.needs_input_grad[-1]
        return None, None, *gradients, like(d_decay, saved[-1]) if needed else None


@torch.library.custom_op("zoo::decayed_sum", mutates_args=())
def _sums(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, causal: bool) -> Tensor:
    inputs = _arrays(q, k, v, log_decay)
    out = torch.zeros_like(by_token(q))
    _run("add_sums", causal, *inputs, as_array(out))
    return out.transpose(1, 2)


@torch.library.custom_op("zoo::decayed_sum_backward", mutates_args=())
def _gradients(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, causal: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k and v, and of log decay for each entry of q."""
    inputs = [*_arrays(q, k, v, log_decay), as_array(by_token(gradient))]
    d_q, d_k, d_v, d_decay = (torch.zeros_like(by_token(q)) for _ in range(4))
    _run("add_gradients", causal, *inputs, *map(as_array, (d_q, d_k, d_v, d_decay)))
    return d_q.transpose(1, 2), d_k.transpose(1, 2), d_v.transpose(1, 2), d_decay.transpose(1, 2)


@register_flop_formula(torch.ops.zoo.decayed_sum)
def _forward_flops(q: Any, *inputs: Any, **_: Any) -> int:
    """Operations of all tokens and directions: k v^T is added to the state, and multiplied by q."""
    return 4 * prod(q) * q[-1] * _directions(inputs[-1])


@register_flop_formula(torch.ops.zoo.decayed_sum_backward)
def _backward_flops(gradient: Any, *inputs: Any, **_: Any) -> int:
    """The state again, and its gradient by q; that of the state, and by k and v."""
    return 10 * prod(gradient) * gradient[-1] * _directions(inputs[-1])


def _directions(causal: bool) -> int:
    return 1 if causal else 2


def like(gradient: Tensor, x: Tensor) -> Tensor:
    """`gradient` in the shape and type of `x`, which was spread over its axes."""
    return gradient.sum_to_size(x.shape).to(x.dtype)


def by_token(x: Tensor) -> Tensor:
    """(b, n, h, e) from (b, h, n, e), without a copy where memory has that order."""
    return x.transpose(1, 2).contiguous()


def _arrays(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> list[Any]:
    """What the loops read: (b, n, h, e), and the decay itself."""
    tokens = [as_array(by_token(x)) for x in (q, k, v)]
    decay = log_decay.exp().to(q.dtype).transpose(1, 2)
    return [*tokens, as_array(decay.expand_as(q.transpose(1, 2)))]


def _run(loop: str, causal: bool, *arrays: Any) -> None:
    """Run a loop over the past and the token itself, and over the future if not causal."""
    # Compilers take a while to import, and other variants need none.
    from zoo.kernels import recurrence_loops

    batch, _, heads, _ = arrays[0].shape
    for backwards in (False,) if causal else (False, True):
        share(getattr(recurrence_loops, loop), batch * heads, 1, *arrays, backwards, backwards)
