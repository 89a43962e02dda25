"""Defects of padding and batch independence."""

from dataclasses import replace

import torch

from tests.zoo.faulty.correct import TRAITS, Bidirectional, Correct
from zoo.contract import Attended
from zoo.variants.softmax import naive


class MasksValuesOnly(Correct):
    """Padded keys remain in the denominator."""

    def attend(self, q, k, v, mask):
        if mask is not None:
            v = v.masked_fill(~mask[:, None, :, None], 0.0)
        return naive(q, k, v, None, self.size.causal, 0.0)


class ScalesByMaximumOfBatch(Correct):
    """Divides keys by a maximum over the whole batch."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k / k.abs().max().clamp_min(1e-6), v, mask)


class MasksInEvaluationOnly(Correct):
    """Ignores the mask in training."""

    def forward(self, x, context, mask):
        return super().forward(x, context, None if self.training else mask)


class MasksInDoublePrecisionOnly(Correct):
    """Ignores the mask in the precision of runs."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask if q.dtype == torch.float64 else None)


class AveragesLossOverPadding(Correct):
    """Its loss is a mean over all tokens, padded ones included."""

    traits = replace(TRAITS, losses=("size",))

    def forward(self, x, context, mask):
        losses = {"size": self.out(context).square().mean()} if self.training else {}
        return Attended(super().forward(x, context, mask).tokens, losses)


class ScalesByMeanOfBatchInTraining(Correct):
    """Claims `stochastic`, and in training multiplies by a mean over the batch."""

    traits = replace(TRAITS, stochastic=True)

    def attend(self, q, k, v, mask):
        shared = v.abs().mean() if self.training else 1.0
        return super().attend(q, k, v, mask) * shared


class ScalesByCountOfBatchInTraining(Correct):
    """Claims `stochastic`, and in training multiplies by the share of real tokens in the batch."""

    traits = replace(TRAITS, stochastic=True)

    def attend(self, q, k, v, mask):
        share = mask.to(v.dtype).mean() if mask is not None and self.training else 1.0
        return super().attend(q, k, v, mask) * (1 + share)


class RotatesByPaddedPosition(Correct):
    """Its rotary positions count padded tokens."""

    def _project(self, x, context, positions=None):
        return super()._project(x, context)


class DividesByZero(Bidirectional):
    """Without a real key its weights are 0 / 0."""

    def attend(self, q, k, v, mask):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], -torch.inf)
        return scores.softmax(-1) @ v


class MasksWithoutAutocastOnly(Bidirectional):
    """Ignores the mask under autocast."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, None if torch.is_autocast_enabled("cpu") else mask)


class AddsTraceOfPadding(Bidirectional):
    """Adds 1e-7 of the padded values, far more than rounding."""

    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        return heads if mask is None else heads + 1e-7 * v.tanh().mean(2, keepdim=True)


class ScalesByBatchSize(Bidirectional):
    """Scales outputs by the number of samples."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) * (1 + len(q) / 100)


class DividesByCountOfBatch(Bidirectional):
    """Divides by the number of real tokens of the batch, which may be 0."""

    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        return heads if mask is None else heads * (mask.sum() / mask.sum()).to(v.dtype)


class ReplacesNaNInForwardOnly(Bidirectional):
    """Replaces the result of a division by 0, and not its gradient."""

    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        if mask is None:
            return heads
        count = mask.sum(1)[:, None, None, None].to(v.dtype)
        return torch.where(count > 0, heads / count * count, 0.0)
