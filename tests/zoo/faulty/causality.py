"""Defects of causality, cross-attention and receptive field."""

from dataclasses import replace

import torch
from torch import nn

from tests.zoo.faulty.correct import SELF_ONLY, Bidirectional, Correct
from zoo.contract import Attended, Attention


class ScalesByMaximumOfAllTokens(Correct):
    """Scales values by a maximum over all tokens, later ones included."""

    def attend(self, q, k, v, mask):
        real = v if mask is None else v.masked_fill(~mask[:, None, :, None], 0.0)
        return super().attend(q, k, v, mask) * (1 + real.abs().amax((-2, -1), keepdim=True))


class IgnoresContext(Correct):
    """Attends to its own input, whatever the context."""

    def forward(self, x, context, mask):
        return super().forward(x, x, None if context is not x else mask)


class AcceptsContextWithoutClaim(Attention):
    """Accepts another context, without claiming cross-attention."""

    traits = SELF_ONLY

    def __init__(self, size):
        super().__init__(size)
        self.map = nn.Linear(size.dim, size.dim)

    def forward(self, x, context, mask):
        return Attended(self.map(x))


class CausalFormWithoutMixing(Correct):
    """In its causal form, an output depends on its own token only."""

    def attend(self, q, k, v, mask):
        if self.size.causal:
            return v + 0.1 * torch.tanh(q * k)
        return super().attend(q, k, v, mask)


class ScalesByLength(Correct):
    """Scales outputs by the number of tokens, later ones included."""

    def attend(self, q, k, v, mask):
        count = k.shape[2] if mask is None else mask.sum(1)[:, None, None, None].to(v.dtype)
        return super().attend(q, k, v, mask) * (1 + count / 100)


class ScalesByPadding(Correct):
    """Scales outputs by the number of padded tokens, later ones included."""

    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        if mask is None:
            return heads
        return heads * (1 + (~mask).sum(1)[:, None, None, None].to(v.dtype) / 100)


class CausalFormOfFirstToken(Correct):
    """In its causal form, an output depends on its own token and on token 0 only."""

    def attend(self, q, k, v, mask):
        if self.size.causal:
            real = 1 if mask is None else mask[:, None, :1, None]
            return v + real * torch.tanh(q * k[:, :, :1])
        return super().attend(q, k, v, mask)


class SubtractsLaterTokens(Correct):
    """Computes the sum of earlier tokens as that of all tokens minus that of later ones."""

    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        if not self.size.causal:
            return heads
        real = v if mask is None else v.masked_fill(~mask[:, None, :, None], 0.0)
        future = real.flip(2).cumsum(2).flip(2) - real
        return heads + 0.1 * (real.sum(2, keepdim=True) - future)


class IgnoresRotaryPositions(Bidirectional):
    """Accepts rotary positions, and does not apply them."""

    def apply_rotary(self, x, positions=None):
        return x


class BuildsCausalWithoutClaim(Bidirectional):
    """Builds the bidirectional form where the causal one is requested."""

    def __init__(self, size):
        super().__init__(replace(size, causal=False))


class IgnoresPaddingOfContext(Bidirectional):
    """Ignores the mask in cross-attention."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask if q.shape[2] == k.shape[2] else None)


class AcceptsFloatMask(Bidirectional):
    """Takes any mask for a boolean one."""

    def __call__(self, x, context=None, mask=None):
        mask = None if mask is None else mask.bool()
        return super().__call__(x, context, mask)
