"""The sums of `zoo.kernels.delta` token by token, for eager execution on a CPU.

The state of a head, (e, f), stays in the cache of a processor, and nothing is divided by a product
of decays. Without gates, with a_i in (0, 1]^e for each token and head,

    causal:      y_i = sum_{j <= i} (q_i . (a_(j+1) ... a_i k_j)) v_j
    otherwise:   y_i plus sum_{j > i} (q_i . (a_i ... a_(j-1) k_j)) v_j

and only the inputs are stored: the backward pass runs the recurrence again for the gradient of q,
and the reversed one for k and v. The gradient of log a_i is the sum over the state of a_i S_(i-1)
times the gradient of S_i; as a sum of q_j d q_j - k_j d k_j over j >= i (Yang et al., 2023, arXiv
2312.06635) it would cancel. With erased keys and a write gate the state before every `SPAN` tokens
is stored too, and those between are computed again. Time O(n e f); memory O(n (e + f)), with erased
keys O(n (e + f) + n e f / SPAN). Both can be differentiated once.

Elsewhere a variant has a form in chunks, which is its definition too.
"""

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from zoo.kernels import eager
from zoo.kernels.threads import share

DTYPES = (torch.float32, torch.float64)

SPAN = 64

# Operations for a token and an entry of the state, forward and backward, by number of inputs.
# With four: k v^T is added to the state, multiplied by q; backward the state again, its gradient by
# q, the gradient of the state and its products. With six the state is read twice, and written; to
# compute it again takes 4, the gradients of q, k, erased keys and values 8, of the state 4.
OPERATIONS = {4: (4, 10), 6: (6, 16)}


def token_sums(definition: Callable[..., Tensor], causal: bool, *inputs: Tensor) -> Tensor:
    # The sums y_i of q, k, v, log decay, and erased keys and write gate if any, which are causal.
    # `definition` computes the same where this cannot run.
    if not can_run(*inputs):
        return definition(*inputs)
    return _TokenSums.apply(causal, None, *_copied(inputs))[0]


def token_sums_after(
    definition: Callable[..., tuple[Tensor, Tensor]], state: Tensor, *inputs: Tensor
) -> tuple[Tensor, Tensor]:
    # The causal `token_sums` after a state, (b, h, e, f), and the state after them.
    if not can_run(*inputs, state):
        return definition(*inputs, state=state)
    return _TokenSums.apply(True, state, *_copied(inputs))


def _copied(inputs: tuple[Tensor, ...]) -> Iterator[Tensor]:
    # Parts of a larger tensor, which is not stored.
    yield from (by_token(x).transpose(1, 2) for x in inputs[:3])
    yield from inputs[3:]


def can_run(*inputs: Tensor) -> bool:
    return all(eager.on_cpu(x) and type(x) is Tensor and x.dtype in DTYPES for x in inputs)


class _TokenSums(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, causal: bool, state: Tensor | None, *inputs: Tensor
    ) -> tuple[Tensor, Tensor]:
        out, states, after = torch.ops.zoo.token_sums(inputs, causal, state)
        ctx.causal = causal
        ctx.save_for_backward(state, *inputs, states)
        return out, after

    @staticmethod
    @eager.differentiable_once("the recurrence of a layer")
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, saved: tuple[Any, ...], gradient: Tensor, d_after: Tensor
    ) -> tuple[Tensor | None, ...]:
        state, *inputs, states = saved
        slopes = torch.ops.zoo.token_sums_backward(
            gradient, inputs, states, ctx.causal, state, d_after
        )
        # Gates and decays are spread over the axes that they do not have.
        gradients = (
            slope.sum_to_size(x.shape).to(x.dtype) if needed else None
            for slope, x, needed in zip(
                slopes, (state, *inputs), ctx.needs_input_grad[1:], strict=True
            )
        )
        return None, *gradients


@torch.library.custom_op("zoo::token_sums", mutates_args=())
def _sums(
    inputs: list[Tensor], causal: bool, state: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    q, v = inputs[0], inputs[2]
    out = torch.empty_like(by_token(v))
    batch, n, heads, width = out.shape
    ends = _of_both_directions(state, q, v, causal)
    if len(inputs) == 4:
        states = q.new_empty(0)
        _run("add_sums", inputs, out, ends, causal=causal)
    else:
        states = q.new_empty(batch * heads, -(-n // SPAN), q.shape[-1], width)
        _run("write_sums", inputs, out, states, ends[0], causal=causal)
    return out.transpose(1, 2), states, ends[0].unflatten(0, (batch, heads)).clone()


@torch.library.custom_op("zoo::token_sums_backward", mutates_args=())
def _gradients(
    gradient: Tensor, inputs: list[Tensor], states: Tensor, causal: bool, state: Tensor | None,
    d_after: Tensor,
) -> list[Tensor]:  # fmt: skip
    q, k, v, *rest = inputs
    d_ends = _of_both_directions(d_after, q, v, causal)
    if len(inputs) == 4:
        slopes = [torch.empty_like(by_token(x)) for x in (q, k, v, q)]
        starts = _of_both_directions(state, q, v, causal)
        _run("add_gradients", inputs, by_token(gradient), *slopes, starts, d_ends, causal=causal)
    else:
        slopes = [torch.empty_like(by_token(x)) for x in (q, k, v)]
        slopes += [q.new_zeros(*slopes[0].shape[:3], gate.shape[-1]) for gate in rest]
        slopes_of = by_token(gradient), *slopes, d_ends[0]
        _run("write_gradients", inputs, states, *slopes_of, causal=causal)
    d_state = d_ends[0].unflatten(0, q.shape[:2]).clone()
    return [d_state, *(slope.transpose(1, 2) for slope in slopes)]


def _of_both_directions(state: Tensor | None, q: Tensor, v: Tensor, causal: bool) -> Tensor:
    # The future starts from 0, as does the past without a state.
    heads = q.shape[0] * q.shape[1]
    ends = q.new_zeros(2 - causal, heads, q.shape[-1], v.shape[-1])
    if state is not None:
        ends[0] = state.flatten(0, 1)
    return ends


def _flops(backward: int, *arguments: Any, **_: Any) -> int:
    # The arguments are those of `_sums` or of `_gradients`.
    inputs, causal = arguments[1:4:2] if backward else arguments[:2]
    directions = 1 if causal else 2
    return OPERATIONS[len(inputs)][backward] * directions * prod(inputs[0]) * inputs[2][-1]


register_flop_formula(torch.ops.zoo.token_sums)(partial(_flops, 0))
register_flop_formula(torch.ops.zoo.token_sums_backward)(partial(_flops, 1))


def by_token(x: Tensor) -> Tensor:
    # Without a copy where memory has that order.
    return x.transpose(1, 2).contiguous()


def _run(loop: str, inputs: list[Tensor], *results: Tensor, causal: bool) -> None:
    # With gates spread over the channels. Without erased keys it runs over the past and the token
    # itself, over the future if not causal.
    # Compilers take a while to import, and other variants need none.
    from zoo.kernels import recurrence_loops

    tokens, (log_decay, *rest) = [by_token(x) for x in inputs[:3]], inputs[3:]
    options = [(SPAN,)] if rest else [(SPAN, False, False), (SPAN, True, True)][: 2 - causal]
    decay = log_decay.exp().to(tokens[0].dtype) if rest else log_decay.double().exp()
    gates = zip((decay, *rest), tokens, strict=False)
    spread = (gate.transpose(1, 2).expand_as(x) for gate, x in gates)
    arrays = [x.detach().numpy() for x in (*tokens, *spread, *results)]
    for option in options:
        blocks = inputs[0].shape[0] * inputs[0].shape[1]
        share(getattr(recurrence_loops, loop), blocks, 1, *arrays, *option)
