"""Correct variants, from which the faulty ones are derived."""

from dataclasses import replace

import torch
from torch import nn

from zoo.contract import Attended, Attention, Traits
from zoo.projected import ProjectedAttention
from zoo.variants.linear import Linear
from zoo.variants.softmax import naive, sdpa

TRAITS = Traits(causal=True, cross=True, linear=False, stochastic=False, recurrent=False)
SELF_ONLY = Traits(causal=False, cross=False, linear=True, stochastic=False, recurrent=False)


class Correct(ProjectedAttention):
    traits = TRAITS

    def attend(self, q, k, v, mask):
        return sdpa(q, k, v, mask, self.size.causal, 0.0)


class Bidirectional(Correct):
    """The same without a causal form, for defects that need none: half as many checks."""

    traits = replace(TRAITS, causal=False)


class CausalOnly(Correct):
    traits = replace(TRAITS, cross=False, bidirectional=False)


class ActivatesTransposedView(Bidirectional):
    """An ELU of a view, which the backend `aot_eager` cannot compile: not a defect of the layer."""

    def attend(self, q, k, v, mask):
        return naive(nn.functional.elu(q), k, v, mask, False, 0.0)


class Recurrent(Linear):
    """Linear attention, without its claim of a linear cost, whose checks take long."""

    traits = replace(Linear.traits, linear=False)


class MeanOfAll(Attention):
    """Adds the mean of all real tokens; without parameters."""

    traits = replace(SELF_ONLY, linear=True)

    def forward(self, x, context=None, mask=None):
        real = torch.ones(x.shape[:2], dtype=x.dtype) if mask is None else mask.to(x.dtype)
        rank = None if mask is None else (mask.cumsum(1) - 1).clamp_min(0)
        rotated = self.apply_rotary(x[:, None], rank)[:, 0]
        total = rotated.masked_fill(real[..., None] == 0, 0.0).sum(1, keepdim=True)
        return Attended(rotated + total / real.sum(1)[:, None, None].clamp_min(1))
