"""Correct variants, from which the faulty ones are derived."""

from dataclasses import replace

import torch
from torch import nn

from zoo.contract import Attended, Attention, Identity, Traits
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


class LowRank(Bidirectional):
    """Two softmaxes, so rounding of logits in fp16 leaves few digits of its gradients."""

    def attend(self, q, k, v, mask):
        if mask is not None:
            k = k.masked_fill(~mask[:, None, :, None], torch.finfo(k.dtype).min)
            v = v.masked_fill(~mask[:, None, :, None], 0.0)
        return q.softmax(-1) @ (k.softmax(-2).mT @ v)


TABLE = {}


class FillsTable(Bidirectional):
    """A table of its module has an entry for each length, from the first call on."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v * TABLE.setdefault(q.shape[2], 1.0), mask)


class EqualsSoftmaxAfterPreparation(Bidirectional):
    """Equals softmax where its parameter is 1, as `prepare` sets it."""

    identities = (
        Identity(
            other="softmax", where="scale = 1", other_options={"backend": "sdpa"}, exact=True,
            prepare=lambda layer, other: layer.scale.fill_(1),
        ),
    )  # fmt: skip

    def __init__(self, size):
        super().__init__(size)
        self.scale = nn.Parameter(torch.tensor(1.1))

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v * self.scale, mask)
