"""Liars about lengths, precisions, gradients, repetition, and what a layer keeps or returns."""

from dataclasses import replace

import torch
from torch import nn

from tests.zoo.liars.honest import HONEST, Bidirectional, Honest
from zoo.contract import Attended


class DetachesItsQueries(Honest):
    """The projection of queries learns nothing."""

    def attend(self, q, k, v, mask):
        return super().attend(q.detach(), k, v, mask)


class HidesALoss(Honest):
    """Returns a loss that its traits do not name."""

    def forward(self, x, context, mask):
        tokens = super().forward(x, context, mask).tokens
        return Attended(tokens, {"secret": tokens.square().mean()} if self.training else {})


class DropsInEvaluation(Honest):
    """Dropout that does not ask whether it is training."""

    def attend(self, q, k, v, mask):
        return nn.functional.dropout(super().attend(q, k, v, mask), 0.1, training=True)


class CountsItsCalls(Honest):
    """Writes a buffer in forward."""

    def __init__(self, size):
        super().__init__(size)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, context, mask):
        self.calls = self.calls + 1
        return super().forward(x, context, mask)


class OverflowsWhenLoud(Honest):
    """Exponentials without a maximum."""

    def attend(self, q, k, v, mask):
        weights = (q @ k.mT).exp()
        if mask is not None:
            weights = weights * mask[:, None, None, :]
        return weights @ v / weights.sum(-1, keepdim=True).clamp_min(1e-30)


class DrawsFromNowhere(Honest):
    """Noise from a generator that nobody can seed."""

    traits = replace(HONEST, stochastic=True)

    def attend(self, q, k, v, mask):
        generator = torch.Generator()
        generator.seed()
        noise = torch.randn(v.shape, generator=generator).to(v.dtype) if self.training else 0.0
        return super().attend(q, k, v, mask) + noise


class HidesAWeight(Honest):
    """Draws what its state dict does not hold."""

    def __init__(self, size):
        super().__init__(size)
        self.secret = torch.randn(size.head_dim)

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) + self.secret.to(v.dtype)


class Turned(torch.autograd.Function):
    """A weight on its way forward, its negative on the way back."""

    generate_vmap_rule = True

    @staticmethod
    def forward(weight):
        return weight.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


class TurnsItsGradients(Honest):
    """Its query projection climbs where it should descend."""

    def _project(self, x, context, place=None):
        _, k, v = super()._project(x, context, place)
        weight, bias = Turned.apply(self.query.weight), Turned.apply(self.query.bias)
        q = self._split(nn.functional.linear(x, weight, bias))
        return self.placed(q, place if context is x else None), k, v


class LogsItsCalls(Honest):
    """Appends to a list in forward."""

    def __init__(self, size):
        super().__init__(size)
        self.log = []

    def forward(self, x, context, mask):
        self.log.append(x.shape)
        return super().forward(x, context, mask)


class CutsOffNothing(Bidirectional):
    """Pads to whole blocks of 64, and cuts the surplus off by its negative, be it zero."""

    def attend(self, q, k, v, mask):
        surplus = -q.shape[2] % 64
        padded = nn.functional.pad(super().attend(q, k, v, mask), (0, 0, 0, surplus))
        return padded[:, :, :-surplus]


class WidensHalfPrecision(Bidirectional):
    """What comes in as bf16 goes out as fp32."""

    def forward(self, x, context, mask):
        tokens = super().forward(x, context, mask).tokens
        return Attended(tokens.to(torch.promote_types(tokens.dtype, torch.float32)))


class LouderInTraining(Bidirectional):
    """Trains on something else than it is evaluated on, and claims no chance."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) * (1.1 if self.training else 1.0)


class BranchesOnItsInput(Bidirectional):
    """Which way it takes is known when the numbers are: no graph holds both."""

    def attend(self, q, k, v, mask):
        return super().attend(q if q.abs().max() < 1e4 else q.clamp(-1e4, 1e4), k, v, mask)


class AnswersOtherwiseWhenCompiled(Bidirectional):
    """Its graph is one, and computes something else."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) * (1.1 if torch.compiler.is_compiling() else 1.0)


class WritesIntoOneBlank(Bidirectional):
    """Its room for results is made for one set of parameters."""

    def attend(self, q, k, v, mask):
        return torch.zeros(q.shape, dtype=q.dtype).copy_(super().attend(q, k, v, mask))


class DoublesInHalfPrecision(Bidirectional):
    """Twice as much comes out of a bf16 module."""

    def attend(self, q, k, v, mask):
        half = v.dtype == torch.bfloat16 and not torch.is_autocast_enabled("cpu")
        return super().attend(q, k, v, mask) * (2 if half else 1)


class DoublesUnderAutocast(Bidirectional):
    """Twice as much comes out under autocast."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) * (2 if torch.is_autocast_enabled("cpu") else 1)


class LosesInEvaluation(Bidirectional):
    """Emits its loss whatever the mode."""

    traits = replace(HONEST, causal=False, losses=("size",))

    def forward(self, x, context, mask):
        tokens = super().forward(x, context, mask).tokens
        real = tokens if mask is None else tokens.masked_fill(~mask[..., None], 0.0)
        return Attended(tokens, {"size": real.square().mean()})


class LosesBySample(LosesInEvaluation):
    """Its loss is no scalar."""

    def forward(self, x, context, mask):
        tokens = super().forward(x, context, mask).tokens
        losses = {"size": tokens.square().mean((1, 2))} if self.training else {}
        return Attended(tokens, losses)


class OverflowsOnTheWayBack(Bidirectional):
    """An exponential whose result is cut, and whose gradient is not."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) + 0.01 * q.exp().clamp_max(1.0)


class MultipliesByNothing(Bidirectional):
    """One of its parameters has a gradient, of zero."""

    def __init__(self, size):
        super().__init__(size)
        self.spare = nn.Parameter(torch.ones(size.head_dim))

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) + 0 * self.spare


class DropsHeadsInEvaluation(Bidirectional):
    """Drops what it was told to drop, whatever the mode."""

    def attend(self, q, k, v, mask):
        return nn.functional.dropout(super().attend(q, k, v, mask), self.size.dropout)


class DropsFromNowhere(Bidirectional):
    """Drops by a generator that nobody can seed, where it is told to drop."""

    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        if not (self.training and self.size.dropout):
            return heads
        generator = torch.Generator()
        generator.seed()
        return heads * (torch.rand(v.shape[-1], generator=generator) > self.size.dropout)


class WritesToItsTokens(Bidirectional):
    """Leaves other tokens behind than it was given."""

    def forward(self, x, context, mask):
        attended = super().forward(x, context, mask)
        x.data.mul_(2)
        return attended


class BranchesOnItsPadding(Bidirectional):
    """Which way it takes is known when the mask is: no graph holds both."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, None if mask is None or mask.all() else mask)


class WritesIntoOneBlankWherePadded(Bidirectional):
    """Many sets of parameters cannot be written into the room for one."""

    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        return heads if mask is None else torch.zeros(q.shape, dtype=q.dtype).copy_(heads)
