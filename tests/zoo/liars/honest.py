"""Variants that keep their claims: what the liars are made from."""

from dataclasses import replace

import torch

from zoo.contract import Attended, Attention, Traits
from zoo.projected import ProjectedAttention
from zoo.variants.linear import Linear
from zoo.variants.softmax import naive

HONEST = Traits(causal=True, cross=True, linear=False, stochastic=False, recurrent=False)
SELF_ONLY = Traits(causal=False, cross=False, linear=True, stochastic=False, recurrent=False)


class Honest(ProjectedAttention):
    """Softmax, literally."""

    traits = HONEST

    def attend(self, q, k, v, mask):
        return naive(q, k, v, mask, self.size.causal, 0.0)


class Bidirectional(Honest):
    """The same without a causal form, for lies that need none: half as much to check."""

    traits = replace(HONEST, causal=False)


class Recurrent(Linear):
    """Linear attention; its claim of a linear cost takes long to prove, and is left out."""

    traits = replace(Linear.traits, linear=False)


class MeanOfAll(Attention):
    """Honest, and without a parameter."""

    traits = replace(SELF_ONLY, linear=True)

    def forward(self, x, context, mask):
        self.require_self(x, context)
        turned = self.placed(x[:, None])[:, 0] if mask is None else self._by_rank(x, mask)
        real = torch.ones(x.shape[:2], dtype=x.dtype) if mask is None else mask.to(x.dtype)
        total = turned.masked_fill(real[..., None] == 0, 0.0).sum(1, keepdim=True)
        return Attended(x + total / real.sum(1)[:, None, None].clamp_min(1))

    def _by_rank(self, x, mask):
        return self.placed(x[:, None], (mask.cumsum(1) - 1).clamp_min(0))[:, 0]
