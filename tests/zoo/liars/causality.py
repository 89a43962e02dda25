"""Liars about the future, a foreign context, and what a token hears of the others."""

from dataclasses import replace

import torch
from torch import nn

from tests.zoo.liars.honest import SELF_ONLY, Bidirectional, Honest
from zoo.contract import Attended, Attention


class LeaksThroughAMaximum(Honest):
    """Scales values by a maximum over all tokens, future ones included."""

    def attend(self, q, k, v, mask):
        real = v if mask is None else v.masked_fill(~mask[:, None, :, None], 0.0)
        return super().attend(q, k, v, mask) * (1 + real.abs().amax((-2, -1), keepdim=True))


class IgnoresTheContext(Honest):
    """Attends to its own input, whatever the context."""

    def forward(self, x, context, mask):
        return super().forward(x, x, None if context is not x else mask)


class TakesAForeignContext(Attention):
    """Claims none, and does not say no."""

    traits = SELF_ONLY

    def __init__(self, size):
        super().__init__(size)
        self.map = nn.Linear(size.dim, size.dim)

    def forward(self, x, context, mask):
        return Attended(self.map(x))


class HearsItselfOnly(Honest):
    """Its causal form looks at no other token."""

    def attend(self, q, k, v, mask):
        if self.size.causal:
            return v + 0.1 * torch.tanh(q * k)
        return super().attend(q, k, v, mask)


class CountsTheFuture(Honest):
    """Hears how many tokens are to come, though not what they are."""

    def attend(self, q, k, v, mask):
        count = k.shape[2] if mask is None else mask.sum(1)[:, None, None, None].to(v.dtype)
        return super().attend(q, k, v, mask) * (1 + count / 100)


class HearsTheFirstTokenOnly(Honest):
    """Its causal form looks at itself and at token 0."""

    def attend(self, q, k, v, mask):
        if self.size.causal:
            real = 1 if mask is None else mask[:, None, :1, None]
            return v + real * torch.tanh(q * k[:, :, :1])
        return super().attend(q, k, v, mask)


class SubtractsTheFuture(Honest):
    """Its sum over the past is the sum over all less that over the future."""

    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        if not self.size.causal:
            return heads
        real = v if mask is None else v.masked_fill(~mask[:, None, :, None], 0.0)
        future = real.flip(2).cumsum(2).flip(2) - real
        return heads + 0.1 * (real.sum(2, keepdim=True) - future)


class StandsNowhere(Bidirectional):
    """Takes rotary positions, and turns nothing by them."""

    def placed(self, x, place=None):
        return x


class BuildsWhatItDoesNotClaim(Bidirectional):
    """Asked for a causal form, it gives the other without a word."""

    def __init__(self, size):
        super().__init__(replace(size, causal=False))


class HearsAPaddedContext(Bidirectional):
    """Forgets padding where the context is another's."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask if q.shape[2] == k.shape[2] else None)
