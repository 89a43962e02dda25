"""Long causal inputs in training: a span of tokens at a time, computed again for gradients.

    y_s, S_(s+1) = extend(x_s, S_s)        x_s the tokens of span s, S_s the state before them

The forward pass stores the tokens and the state before each span, and all of the last span; the
backward pass computes the others again, from the last to the first, so that features, gates and
weights of one span are in memory at a time (Chen et al., 2016, arXiv 1604.06174). The definition is
`forward` of the whole input. Time: one more forward pass of all spans but the last.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import wraps
from math import ceil
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from zoo.contract import Attended, Attention, Context, Mask, State, Tokens
from zoo.kernels import eager
from zoo.kernels.real_tokens import gather_tokens, real_tokens_first, with_real_tokens_first
from zoo.recompute import as_function, recomputed

Extend = Callable[..., tuple[Tokens, State]]

# Spans of a long input: with more, a larger part is computed again, by smaller operations.
SPANS = 4

LEAST = 512  # Tokens of a span, at least: operations of shorter ones are slow


def in_spans(forward: Callable[..., Attended]) -> Callable[..., Attended]:
    # The attribute `spans` of the layer is their number, 0 for none; with a fraction, such as 8/3,
    # the first is the short one. The layer has `extend`, and neither dropout nor auxiliary losses.
    @wraps(forward)
    def compute(
        layer: Any, x: Tokens, context: Context | None = None, mask: Mask = None
    ) -> Attended:
        if has_spans(layer, x, context):
            return Attended(by_spans(layer, type(layer).extend, x, mask, layer.start(len(x)))[0])
        return forward(layer, x, context, mask)

    return compute


class RealTokensFirst(Attention):
    """Self-attention that moves the real tokens of each sample to the front, and afterwards back.

    Positions are ranks among the real tokens, so that no token comes after a padded one.
    """

    spans: float = 0

    @in_spans
    def forward(self, x: Tokens, context: Context | None = None, mask: Mask = None) -> Attended:
        return Attended(with_real_tokens_first(self.attend_ordered, mask, x))

    @abstractmethod
    def attend_ordered(self, x: Tokens, count: Int[Tensor, " #b"]) -> Tokens:
        """New tokens of samples whose first `count` tokens are real."""


def has_spans(layer: Any, x: Tokens, context: Context | None) -> bool:
    # An exported graph serves every length.
    of_itself = context is None or context is x
    trains = torch.is_grad_enabled() and not torch.compiler.is_exporting()
    causal = layer.size.causal and of_itself and trains and eager.on_cpu(x)
    return causal and 0 < span_of(layer, x) < x.shape[1]


def span_of(layer: Any, x: Tokens) -> int:
    # The tokens of a span of an input, 0 for none: a power of two, or a multiple of `LEAST`.
    # An input has about `layer.spans`, so that memory relative to softmax, and the operations of a
    # token, do not depend on the length.
    if not layer.spans:
        return 0
    part = ceil(x.shape[1] / layer.spans)
    if layer.spans % 1:
        return -(-part // LEAST) * LEAST
    return max(LEAST, 1 << (part - 1).bit_length())


def by_spans(
    layer: Attention, extend: Extend, x: Tokens, mask: Mask, state: State
) -> tuple[Tokens, State]:
    # `extend` is a method of the class of `layer`; see `Attention.extend`.
    if mask is None:
        return _in_order(layer, extend, x, None, state)
    order, inverse = real_tokens_first(mask)
    first, real = gather_tokens(x, order), mask.gather(1, order)
    tokens, state = _in_order(layer, extend, first, real, state)
    return gather_tokens(tokens, inverse), state


def _in_order(
    layer: Any, extend: Extend, x: Tokens, real: Mask, state: State
) -> tuple[Tokens, State]:
    # For samples whose padding is last.
    def of_span(layer: Any, x: Tensor, real: Mask, *state: Tensor) -> tuple[Tensor, ...]:
        # A span of several samples is not contiguous: each product of matrices would copy it.
        tokens, after = extend(layer, x.contiguous(), real, state)
        return tokens, *after

    compute, outputs, states = as_function(layer, of_span), list[Tensor](), [*state]
    number, rest = divmod(x.shape[1], size := span_of(layer, x))
    sizes, rest = [size] * number, [rest] * bool(rest)
    # The last span is not computed again: it should not be the short one.
    sizes = rest + sizes if layer.spans % 1 else sizes + rest
    spans = x.split(sizes, 1)
    masks = [None] * len(spans) if real is None else real.split(sizes, 1)
    for number, (tokens, mask) in enumerate(zip(spans, masks, strict=True), 1):
        # The backward pass begins with the last: it would compute at once what is stored here.
        call = recomputed if number < len(spans) else lambda function, *inputs: function(*inputs)
        new, *states = call(compute, tokens, mask, *states)
        outputs.append(new)
    return torch.cat(outputs, dim=1), tuple(states)
