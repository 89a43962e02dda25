"""The sums of `zoo.kernels.delta` token by token, for eager execution on a CPU.

The state of a head, (e, f), stays in the cache of a processor, and nothing is divided by a product
of decays. Without gates, with a_i in (0, 1]^e for each token and head,

    causal:      y_i = sum_{j <= i} (q_i . (a_(j+1) ... a_i k_j)) v_j
    otherwise:   y_i plus sum_{j > i} (q_i . (a_i ... a_(j-1) k_j)) v_j

and only the inputs are stored: the backward pass runs the recurrence again for the gradient of q,
and the reversed one for k and v; the gradient of log a_i is the sum of q_j d q_j - k_j d k_j over
j >= i (Yang et al., 2023, arXiv 2312.06635). With an erase and a write gate the state before every
`SPAN` tokens is stored too, and those between are computed again. Time O(n e f); memory
O(n (e + f)), with gates O(n (e + f) + n e f / SPAN).

Elsewhere a variant has a form in chunks, which is its definition too.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from zoo.kernels import eager
from zoo.kernels.threads import as_array, share

DTYPES = (torch.float32, torch.float64)

SPAN = 64

OPERATIONS = {4: (4, 10), 6: (6, 16)}
"""Operations for a token and an entry of the state, forward and backward, by number of inputs.

Without gates: k v^T is added to the state, multiplied by q; backward the state again, its gradient
by q, the gradient of the state and its products. With gates the state is read twice, and written;
to compute it again takes 4, the gradients of q, k, erased keys and values 8, of the state 4.
"""


def token_sums(definition: Callable[..., Tensor], causal: bool, *inputs: Tensor) -> Tensor:
    """The sums y_i, (b, h, n, f), of q, k, v, log decay, and the erase and the write gate if any.

    `definition` computes the same from `inputs`. It is used where this cannot run, and for
    derivatives of gradients. With gates it is causal.
    """
    if not can_run(*inputs):
        return definition(*inputs)
    # Copies of what is part of a larger tensor, which then is not stored.
    tokens = (by_token(x).transpose(1, 2) for x in inputs[:3])
    return _TokenSums.apply(definition, causal, *tokens, *inputs[3:])


def token_sums_after(
    definition: Callable[..., tuple[Tensor, Tensor]], state: Tensor, *inputs: Tensor
) -> tuple[Tensor, Tensor]:
    """The causal `token_sums` after a state, (b, h, e, f), and the state after them.

    `definition` computes the same from `inputs` and `state`, also where gradients are needed.
    """
    needed = torch.is_grad_enabled() and any(x.requires_grad for x in (*inputs, state))
    if needed or not can_run(*inputs, state):
        return definition(*inputs, state=state)
    out, _, after = torch.ops.zoo.token_sums(inputs, True, state)
    return out, after


def can_run(*inputs: Tensor) -> bool:
    """Return whether the loops can run on these tensors."""
    return all(eager.on_cpu(x) and type(x) is Tensor and x.dtype in DTYPES for x in inputs)


class _TokenSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, definition: Any, causal: bool, *inputs: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        out, states, _ = torch.ops.zoo.token_sums(inputs, causal, None)
        ctx.definition, ctx.causal = definition, causal
        ctx.save_for_backward(*inputs, states)
        return out

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        *inputs, states = ctx.saved_tensors
        if torch.is_grad_enabled():
            out = ctx.definition(*inputs)
            return None, None, *eager.differentiable(out, tuple(inputs), gradient)
        slopes = torch.ops.zoo.token_sums_backward(gradient, inputs, states, ctx.causal)
        # Gates and decays are spread over the axes that they do not have.
        gradients = (
            slope.sum_to_size(x.shape).to(x.dtype) if needed else None
            for slope, x, needed in zip(slopes, inputs, ctx.needs_input_grad[2:], strict=True)
        )
        return None, None, *gradients


@torch.library.custom_op("zoo::token_sums", mutates_args=())
def _sums(
    inputs: list[Tensor], causal: bool, state: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The sums, the states that the backward pass needs, and the state after the last token."""
    q, v = inputs[0], inputs[2]
    out = torch.zeros_like(by_token(v))
    batch, n, heads, width = out.shape
    # Of both directions.
    ends = q.new_zeros(2 - causal, batch * heads, q.shape[-1], width)
    if state is not None:
        ends.copy_(state.flatten(0, 1))
    if len(inputs) == 4:
        states = q.new_empty(0)
        _run("add_sums", inputs, out, ends, causal=causal)
    else:
        states = q.new_empty(batch * heads, -(-n // SPAN), q.shape[-1], width)
        _run("write_sums", inputs, out, states, ends[0], causal=causal)
    return out.transpose(1, 2), states, ends[0].unflatten(0, (batch, heads)).clone()


@torch.library.custom_op("zoo::token_sums_backward", mutates_args=())
def _gradients(
    gradient: Tensor, inputs: list[Tensor], states: Tensor, causal: bool
) -> list[Tensor]:
    """Gradients of q, k, v, log decay and gates, for every token."""
    q, k, v, *gates = inputs
    if len(inputs) == 4:
        slopes = [torch.zeros_like(by_token(q)) for _ in range(4)]
        _run("add_gradients", inputs, by_token(gradient), *slopes, causal=causal)
    else:
        slopes = [torch.empty_like(by_token(x)) for x in (q, k, v)]
        slopes += [q.new_zeros(*slopes[0].shape[:3], gate.shape[-1]) for gate in gates]
        _run("write_gradients", inputs, states, by_token(gradient), *slopes, causal=causal)
    return [slope.transpose(1, 2) for slope in slopes]


@register_flop_formula(torch.ops.zoo.token_sums)
def _forward_flops(inputs: Any, causal: bool, *_: Any, **__: Any) -> int:
    return _flops(inputs, causal, 0)


@register_flop_formula(torch.ops.zoo.token_sums_backward)
def _backward_flops(gradient: Any, inputs: Any, states: Any, causal: bool, **_: Any) -> int:
    return _flops(inputs, causal, 1)


def _flops(inputs: Any, causal: bool, backward: int) -> int:
    directions = 1 if causal else 2
    return OPERATIONS[len(inputs)][backward] * directions * prod(inputs[0]) * inputs[2][-1]


def by_token(x: Tensor) -> Tensor:
    """(b, n, h, e) from (b, h, n, e), without a copy where memory has that order."""
    return x.transpose(1, 2).contiguous()


def _run(loop: str, inputs: list[Tensor], *results: Tensor, causal: bool) -> None:
    """Run a loop on (b, n, h, e), and the decay itself, with gates spread over the channels.

    Without gates it runs over the past and the token itself, and over the future if not causal.
    """
    # Compilers take a while to import, and other variants need none.
    from zoo.kernels import recurrence_loops

    tokens, (log_decay, *gates) = [by_token(x) for x in inputs[:3]], inputs[3:]
    gates = zip((log_decay.exp(), *gates), tokens, strict=False)
    spread = (gate.to(x.dtype).transpose(1, 2).expand_as(x) for gate, x in gates)
    arrays = [as_array(x) for x in (*tokens, *spread, *results)]
    options = [(SPAN,)] if len(inputs) > 4 else [(False, False), (True, True)][: 2 - causal]
    for option in options:
        blocks = inputs[0].shape[0] * inputs[0].shape[1]
        share(getattr(recurrence_loops, loop), blocks, 1, *arrays, *option)
