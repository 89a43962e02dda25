"""Variants in which one output depends on one token, or sequence, that it must not depend on.

But for packed rows, no output depends on another token without their leak, which takes a check the
least time.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from zoo.contract import Attended, Attention
from zoo.kernels.real_tokens import token_ranks
from zoo.packed import Packed
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


def batch_leak(samples: Pair, pair: Pair, effect: str) -> type[Attention]:
    """Output i of sample a depends on token j of sample b, for (a, b) and (i, j)."""
    (a, b), (i, j) = samples, pair

    def change(layer: Attention, x: Tensor, mask: Tensor | None) -> Tensor | None:
        if max(a, b) >= x.shape[0] or max(i, j) >= x.shape[1]:
            return None
        return (torch.arange(len(x)) == a)[:, None].to(x.dtype) * EFFECTS[effect](x[b, j])

    return _leaking(f"BatchLeak {samples} {pair} {effect}", i, change)


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


def packs(base: type, leak: str = "") -> type:
    """A variant with packed rows of its own, which computes `leak` of whole rows."""

    def packed(self, x, mask, segments):
        rows = Packed(segments, mask)

        def each(part, compute, *inputs):
            if part == leak:
                return compute(*inputs, mask)
            return rows.join([compute(*map(part.of, inputs), part.mask) for part in rows.parts])

        def heads(query, context, mask):
            positions = None if mask is None else token_ranks(mask)
            return torch.cat(self._heads(query, context, positions, positions), dim=-1)

        query = each("convolution", self.query_conv, self.query(x))
        context = each("convolution", self.context_conv, self.context(x))
        q, k, v = each("positions", heads, query, context).chunk(3, dim=-1)
        return Attended(self._merge(x, each("heads", self.attend, q, k, v)))

    return type(f"Leaks{leak.title()}Of{base.__name__}", (base,), {"packed": packed})
