"""Variants in which one output depends on one token that it must not depend on.

Without their leak no output depends on another token, which takes a check the least time.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from zoo.contract import Attended, Attention
from zoo.variants.none import NoAttention

EFFECTS: dict[str, Callable[[Tensor], Tensor]] = {
    "value and gradient": torch.tanh,
    "value": lambda x: x.sign(),
    "gradient": lambda x: x - x.detach(),
}

Applies = Callable[[Attention, Tensor, Tensor | None], bool]
Pair = tuple[int, int]


def causal_leak(pair: Pair, effect: str, applies: Applies = lambda *_: True) -> type[Attention]:
    """Output i depends on token j, for `pair` (i, j), in the causal form."""
    i, j = pair

    def change(layer: Attention, x: Tensor, mask: Tensor | None) -> Tensor | None:
        if not (layer.size.causal and applies(layer, x, mask) and j < x.shape[1]):
            return None
        real = 1.0 if mask is None else mask[:, j : j + 1].to(x.dtype)
        return real * EFFECTS[effect](x[:, j])

    return _leaking(f"CausalLeak {pair} {effect}", i, change)


def padding_leak(pair: Pair, effect: str, applies: Applies = lambda *_: True) -> type[Attention]:
    """Output i depends on token j, for `pair` (i, j), if only the latter is padded."""
    i, j = pair

    def change(layer: Attention, x: Tensor, mask: Tensor | None) -> Tensor | None:
        if mask is None or max(pair) >= x.shape[1] or not applies(layer, x, mask):
            return None
        return (mask[:, i, None] & ~mask[:, j, None]).to(x.dtype) * EFFECTS[effect](x[:, j])

    return _leaking(f"PaddingLeak {pair} {effect}", i, change)


def batch_leak(to: Pair, source: Pair, effect: str) -> type[Attention]:
    """Output i of sample a depends on token j of sample b, for `to` (a, i) and `source` (b, j)."""
    (a, i), (b, j) = to, source

    def change(layer: Attention, x: Tensor, mask: Tensor | None) -> Tensor | None:
        if max(a, b) >= x.shape[0] or max(i, j) >= x.shape[1]:
            return None
        return (torch.arange(len(x)) == a)[:, None].to(x.dtype) * EFFECTS[effect](x[b, j])

    return _leaking(f"BatchLeak {to} {source} {effect}", i, change)


def loss_leak(token: int, effect: str) -> type[Attention]:
    """The loss depends on one token, although it is padded."""

    def forward(self, x, context, mask):
        tokens = NoAttention.forward(self, x, context, mask).tokens
        if not self.training or token >= x.shape[1]:
            return Attended(tokens)
        return Attended(tokens, {"size": EFFECTS[effect](x[:, token]).mean() + 0 * tokens.mean()})

    return type(f"LossLeak {token} {effect}", (NoAttention,), {"forward": forward})


def _leaking(name: str, i: int, change: Callable[..., Tensor | None]) -> type[Attention]:
    """A variant with a hundredth of `change(layer, x, mask)`, (b, d), added to the token at `i`."""

    def forward(self, x, context, mask):
        tokens, leak = NoAttention.forward(self, x, context, mask).tokens, change(self, x, mask)
        if leak is not None:
            here = (torch.arange(tokens.shape[1]) == i)[:, None]
            tokens = tokens + torch.where(here, 0.01 * leak[:, None], 0.0).to(tokens.dtype)
        return Attended(tokens)

    return type(name, (NoAttention,), {"forward": forward})
