"""The sums of `zoo.kernels.delta` token by token, for eager execution on a CPU.

The state of a head stays in the cache of a processor. The backward pass computes the states of
`SPAN` tokens at a time again, from that before them. Only the inputs and these states are stored.
Nothing is divided by a product of decays. Time O(n e f), memory O(n (e + f) + n e f / SPAN).
"""

from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from zoo.kernels import eager
from zoo.kernels.recurrence import DTYPES, Definition, by_token, like
from zoo.kernels.threads import as_array, share

SPAN = 64
FORWARD, BACKWARD = 6, 16
"""Operations of a token and an entry of the state: it is read twice, and written; to compute it
again takes 4, its gradients by q, k, erased keys and values 8, that of the state before it 4."""


def delta_sum(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, erase: Tensor, write: Tensor,
    definition: Definition,
) -> Tensor:  # fmt: skip
    """The outputs of `zoo.kernels.delta.attend`; `definition` computes the same.

    It is used where this cannot run, and for derivatives of gradients.
    """
    parts = q, k, v, log_decay, erase, write
    if not all(eager.on_cpu(x) and type(x) is Tensor and x.dtype in DTYPES for x in parts):
        return definition(*parts)
    # Copies of what is part of a larger tensor, which then is not stored.
    tokens = (by_token(x).transpose(1, 2) for x in (q, k, v))
    return _DeltaSum.apply(definition, *tokens, log_decay, erase, write)


class _DeltaSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, definition: Definition, *inputs: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        out, states = torch.ops.zoo.delta_sum(*inputs)
        ctx.definition = definition
        ctx.save_for_backward(*inputs, states)
        return out

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        *inputs, states = ctx.saved_tensors
        if torch.is_grad_enabled():
            inputs = tuple(inputs)
            return None, *eager.differentiable(ctx.definition(*inputs), inputs, gradient)
        gradients = torch.ops.zoo.delta_sum_backward(gradient, *inputs, states)
        pairs = zip(gradients, inputs, ctx.needs_input_grad[1:], strict=True)
        return None, *(like(slope, x) if needed else None for slope, x, needed in pairs)


@torch.library.custom_op("zoo::delta_sum", mutates_args=())
def _sums(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, erase: Tensor, write: Tensor
) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(by_token(v))
    batch, n, heads, width = out.shape
    states = q.new_empty(batch * heads, -(-n // SPAN), q.shape[-1], width)
    _run("write_sums", q, k, v, log_decay, erase, write, states=(out, states))
    return out.transpose(1, 2), states


@torch.library.custom_op("zoo::delta_sum_backward", mutates_args=())
def _gradients(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, erase: Tensor,
    write: Tensor, states: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k, v, log decay and both gates, of these for every token."""
    d_q, d_k, d_v = (torch.empty_like(by_token(x)) for x in (q, k, v))
    d_decay, d_erase, d_write = (
        d_q.new_zeros(*d_q.shape[:3], gate.shape[-1]) for gate in (log_decay, erase, write)
    )
    slopes = d_q, d_k, d_v, d_decay, d_erase, d_write
    _run("write_gradients", q, k, v, log_decay, erase, write,
         states=(states, by_token(gradient), *slopes))  # fmt: skip
    d_q, d_k, d_v, d_decay, d_erase, d_write = (slope.transpose(1, 2) for slope in slopes)
    return d_q, d_k, d_v, d_decay, d_erase, d_write


@register_flop_formula(torch.ops.zoo.delta_sum)
def _forward_flops(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    return FORWARD * prod(q) * v[-1]


@register_flop_formula(torch.ops.zoo.delta_sum_backward)
def _backward_flops(gradient: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    return BACKWARD * prod(q) * v[-1]


def _run(
    loop: str, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, erase: Tensor, write: Tensor,
    *, states: tuple[Tensor, ...],
) -> None:  # fmt: skip
    """Run a loop on (b, n, h, e), and the decay itself, with gates spread over the channels."""
    # Compilers take a while to import, and other variants need none.
    from zoo.kernels import delta_loops

    q, k, v = (by_token(x) for x in (q, k, v))
    gates = ((log_decay.exp(), q), (erase, k), (write, v))
    spread = (gate.to(q.dtype).transpose(1, 2).expand_as(tokens) for gate, tokens in gates)
    arrays = map(as_array, (q, k, v, *spread, *states))
    share(getattr(delta_loops, loop), q.shape[0] * q.shape[2], 1, *arrays, SPAN)
