"""Defects of lengths, precisions, gradients, determinism, state and transforms."""

from dataclasses import replace

import torch
from torch import nn

from tests.zoo.faulty.correct import TRAITS, Bidirectional, Correct
from zoo.contract import Attended


class DetachesQueries(Correct):
    """The query projection gets no gradient."""

    def attend(self, q, k, v, mask):
        return super().attend(q.detach(), k, v, mask)


class ReturnsUndeclaredLoss(Correct):
    """Returns a loss that its traits do not name."""

    def forward(self, x, context, mask):
        tokens = super().forward(x, context, mask).tokens
        return Attended(tokens, {"secret": tokens.square().mean()} if self.training else {})


class AddsDropoutInEvaluation(Correct):
    """Applies dropout in both modes."""

    def attend(self, q, k, v, mask):
        return nn.functional.dropout(super().attend(q, k, v, mask), 0.1, training=True)


class WritesBuffer(Correct):
    """Writes a buffer in forward."""

    def __init__(self, size):
        super().__init__(size)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, context, mask):
        self.calls = self.calls + 1
        return super().forward(x, context, mask)


class OverflowsForLargeInputs(Correct):
    """Exponentials without subtracting a maximum."""

    def attend(self, q, k, v, mask):
        weights = (q @ k.mT).exp()
        if mask is not None:
            weights = weights * mask[:, None, None, :]
        return weights @ v / weights.sum(-1, keepdim=True).clamp_min(1e-30)


class DrawsUnseededNoise(Correct):
    """Draws noise from a generator that cannot be seeded."""

    traits = replace(TRAITS, stochastic=True)

    def attend(self, q, k, v, mask):
        generator = torch.Generator()
        generator.seed()
        noise = torch.randn(v.shape, generator=generator).to(v.dtype) if self.training else 0.0
        return super().attend(q, k, v, mask) + noise


class WeightOutsideStateDict(Correct):
    """Draws a weight that is not part of its state dict."""

    def __init__(self, size):
        super().__init__(size)
        self.secret = torch.randn(size.head_dim)

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) + self.secret.to(v.dtype)


class Negated(torch.autograd.Function):
    """The identity, with the negative of its gradient."""

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


class NegatesGradients(Correct):
    """The gradients of its query projection have the wrong sign."""

    def _project(self, x, context, positions=None):
        _, k, v = super()._project(x, context, positions)
        weight, bias = Negated.apply(self.query.weight), Negated.apply(self.query.bias)
        q = self._split(nn.functional.linear(x, weight, bias))
        return self.apply_rotary(q, positions if context is x else None), k, v


class AppendsToList(Correct):
    """Appends to a list in forward."""

    def __init__(self, size):
        super().__init__(size)
        self.log = []

    def forward(self, x, context, mask):
        self.log.append(x.shape)
        return super().forward(x, context, mask)


class SlicesByZero(Bidirectional):
    """Pads to blocks of 64 and removes the rest with a slice that is wrong for a rest of 0."""

    def attend(self, q, k, v, mask):
        surplus = -q.shape[2] % 64
        padded = nn.functional.pad(super().attend(q, k, v, mask), (0, 0, 0, surplus))
        return padded[:, :, :-surplus]


class ReturnsFp32(Bidirectional):
    """Returns fp32 for bf16 inputs."""

    def forward(self, x, context, mask):
        tokens = super().forward(x, context, mask).tokens
        return Attended(tokens.to(torch.promote_types(tokens.dtype, torch.float32)))


class ScalesInTraining(Bidirectional):
    """Training computes something else than evaluation, without the claim `stochastic`."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) * (1.1 if self.training else 1.0)


class BranchesOnValues(Bidirectional):
    """Branches on values, which no single graph can."""

    def attend(self, q, k, v, mask):
        return super().attend(q if q.abs().max() < 1e4 else q.clamp(-1e4, 1e4), k, v, mask)


class DiffersWhenCompiled(Bidirectional):
    """Compiles to one graph, which computes something else."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) * (1.1 if torch.compiler.is_compiling() else 1.0)


class WritesIntoUnbatchedBuffer(Bidirectional):
    """Its output buffer has room for one set of parameters."""

    def attend(self, q, k, v, mask):
        return torch.zeros(q.shape, dtype=q.dtype).copy_(super().attend(q, k, v, mask))


class DoublesInHalfPrecision(Bidirectional):
    """A bf16 module returns twice the output."""

    def attend(self, q, k, v, mask):
        half = v.dtype == torch.bfloat16 and not torch.is_autocast_enabled("cpu")
        return super().attend(q, k, v, mask) * (2 if half else 1)


class ScalesInSinglePrecision(Bidirectional):
    """Outputs in fp32 are too large by one part in a hundred."""

    def attend(self, q, k, v, mask):
        single = v.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        return super().attend(q, k, v, mask) * (1.01 if single else 1)


class DoublesUnderAutocast(Bidirectional):
    """Autocast returns twice the output."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) * (2 if torch.is_autocast_enabled("cpu") else 1)


class ReturnsLossInEvaluation(Bidirectional):
    """Returns its loss in both modes."""

    traits = replace(TRAITS, causal=False, losses=("size",))

    def forward(self, x, context, mask):
        tokens = super().forward(x, context, mask).tokens
        real = tokens if mask is None else tokens.masked_fill(~mask[..., None], 0.0)
        return Attended(tokens, {"size": real.square().mean()})


class ReturnsLossPerSample(ReturnsLossInEvaluation):
    """Its loss is not a scalar."""

    def forward(self, x, context, mask):
        tokens = super().forward(x, context, mask).tokens
        losses = {"size": tokens.square().mean((1, 2))} if self.training else {}
        return Attended(tokens, losses)


class OverflowsInBackward(Bidirectional):
    """An exponential whose value is clamped, and whose gradient is not."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) + 0.01 * q.exp().clamp_max(1.0)


class MultipliesByZero(Bidirectional):
    """One of its parameters has a gradient of zero."""

    def __init__(self, size):
        super().__init__(size)
        self.spare = nn.Parameter(torch.ones(size.head_dim))

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) + 0 * self.spare


class AppliesGivenDropoutInEvaluation(Bidirectional):
    """Applies the dropout of its size in both modes."""

    def attend(self, q, k, v, mask):
        return nn.functional.dropout(super().attend(q, k, v, mask), self.size.dropout)


class DrawsUnseededDropout(Bidirectional):
    """Draws its dropout from a generator that cannot be seeded."""

    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        if not (self.training and self.size.dropout):
            return heads
        generator = torch.Generator()
        generator.seed()
        return heads * (torch.rand(v.shape[-2:], generator=generator) > self.size.dropout)


class WritesToInput(Bidirectional):
    """Changes the tokens that it is given."""

    def forward(self, x, context, mask):
        attended = super().forward(x, context, mask)
        x.data.mul_(2)
        return attended


class BranchesOnMask(Bidirectional):
    """Branches on the values of the mask, which no single graph can."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, None if mask is None or mask.all() else mask)


class WritesIntoUnbatchedBufferIfPadded(Bidirectional):
    """With a mask, its output buffer has room for one set of parameters."""

    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        return heads if mask is None else torch.zeros(q.shape, dtype=q.dtype).copy_(heads)


class HalvesGradientOfLoss(ReturnsLossInEvaluation):
    """The gradient of its loss is half of what it should be."""

    def forward(self, x, context, mask):
        tokens, losses = super().forward(x, context, mask)
        halved = {name: (loss + loss.detach()) / 2 for name, loss in losses.items()}
        return Attended(tokens, halved if self.training else {})


class ReturnsLargeLoss(Bidirectional):
    """Its auxiliary loss is so large that it dominates training."""

    traits = replace(TRAITS, causal=False, losses=("size",))

    def forward(self, x, context, mask):
        tokens = super().forward(x, context, mask).tokens
        real = tokens if mask is None else tokens.masked_fill(~mask[..., None], 0.0)
        return Attended(tokens, {"size": 1e4 * real.square().mean()} if self.training else {})
