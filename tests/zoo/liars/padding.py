"""Liars about padding and batch-mates."""

from dataclasses import replace

import torch

from tests.zoo.liars.honest import HONEST, Bidirectional, Honest
from zoo.contract import Attended
from zoo.variants.softmax import naive


class MasksValuesOnly(Honest):
    """Padded keys stay in the denominator."""

    def attend(self, q, k, v, mask):
        if mask is not None:
            v = v.masked_fill(~mask[:, None, :, None], 0.0)
        return naive(q, k, v, None, self.size.causal, 0.0)


class ScalesByTheBatch(Honest):
    """A maximum over the whole batch."""

    def attend(self, q, k, v, mask):
        return super().attend(
            q, k / k.abs().max().clamp_min(1e-6), v, None if mask is None else mask
        )


class MasksInEvaluationOnly(Honest):
    """Forgets padding where it trains."""

    def forward(self, x, context, mask):
        return super().forward(x, context, None if self.training else mask)


class MasksInDoublePrecisionOnly(Honest):
    """Forgets padding in the precision that runs use."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask if q.dtype == torch.float64 else None)


class LosesOverPadding(Honest):
    """Its loss is a mean over all tokens, padded ones included."""

    traits = replace(HONEST, losses=("size",))

    def forward(self, x, context, mask):
        losses = {"size": self.out(context).square().mean()} if self.training else {}
        return Attended(super().forward(x, context, mask).tokens, losses)


class ScalesByTheBatchInTraining(Honest):
    """A claim to chance, behind which batch-mates move each other."""

    traits = replace(HONEST, stochastic=True)

    def attend(self, q, k, v, mask):
        shared = v.abs().mean() if self.training else 1.0
        return super().attend(q, k, v, mask) * shared


class TurnsByThePaddedPlace(Honest):
    """Its rotary positions count padding."""

    def _project(self, x, context, place=None):
        return super()._project(x, context)


class DividesByNothing(Bidirectional):
    """Where no key is real, its weights are 0 / 0."""

    def attend(self, q, k, v, mask):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], -torch.inf)
        return scores.softmax(-1) @ v


class MasksWithoutAutocastOnly(Bidirectional):
    """Forgets padding under autocast."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, None if torch.is_autocast_enabled("cpu") else mask)


class HearsPaddingFaintly(Bidirectional):
    """A trace of padded values, far above rounding."""

    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        return heads if mask is None else heads + 1e-7 * v.tanh().mean(2, keepdim=True)


class CountsItsBatchMates(Bidirectional):
    """Whatever they are: only how many there are is felt."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) * (1 + len(q) / 100)


class DividesByTheWholeBatch(Bidirectional):
    """By 0 where no sample of the batch has a real token."""

    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        return heads if mask is None else heads * (mask.sum() / mask.sum()).to(v.dtype)


class HidesADivisionByNothing(Bidirectional):
    """The result of a division by 0 is replaced; its gradient is not."""

    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        if mask is None:
            return heads
        count = mask.sum(1)[:, None, None, None].to(v.dtype)
        return torch.where(count > 0, heads / count * count, 0.0)
