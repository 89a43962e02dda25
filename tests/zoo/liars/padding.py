"""Liars about padding and batch-mates."""

from dataclasses import replace

import torch

from tests.zoo.liars.honest import HONEST, Bidirectional, Honest
from zoo.contract import Attended
from zoo.variants.softmax import naive


class MasksValuesOnly(Honest):
    """Padded keys stay in the denominator."""

    def attend(self, q, k, v, keep):
        if keep is not None:
            v = v.masked_fill(~keep[:, None, :, None], 0.0)
        return naive(q, k, v, None, self.size.causal, 0.0)


class ScalesByTheBatch(Honest):
    """A maximum over the whole batch."""

    def attend(self, q, k, v, keep):
        return super().attend(
            q, k / k.abs().max().clamp_min(1e-6), v, None if keep is None else keep
        )


class MasksInEvaluationOnly(Honest):
    """Forgets padding where it trains."""

    def forward(self, x, context, keep):
        return super().forward(x, context, None if self.training else keep)


class MasksInDoublePrecisionOnly(Honest):
    """Forgets padding in the precision that runs use."""

    def attend(self, q, k, v, keep):
        return super().attend(q, k, v, keep if q.dtype == torch.float64 else None)


class LosesOverPadding(Honest):
    """Its loss is a mean over all tokens, padded ones included."""

    traits = replace(HONEST, losses=("size",))

    def forward(self, x, context, keep):
        losses = {"size": self.out(context).square().mean()} if self.training else {}
        return Attended(super().forward(x, context, keep).tokens, losses)


class ScalesByTheBatchInTraining(Honest):
    """A claim to chance, behind which batch-mates move each other."""

    traits = replace(HONEST, stochastic=True)

    def attend(self, q, k, v, keep):
        shared = v.abs().mean() if self.training else 1.0
        return super().attend(q, k, v, keep) * shared


class TurnsByThePaddedPlace(Honest):
    """Its rotary positions count padding."""

    def _project(self, x, context, place=None):
        return super()._project(x, context)


class DividesByNothing(Bidirectional):
    """Where no key is real, its weights are 0 / 0."""

    def attend(self, q, k, v, keep):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if keep is not None:
            scores = scores.masked_fill(~keep[:, None, None, :], -torch.inf)
        return scores.softmax(-1) @ v
