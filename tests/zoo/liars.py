"""Variants that lie, each in one way, and the check that is meant to catch each."""

from dataclasses import replace

import torch
from torch import nn

from zoo.conformance import CHECKS
from zoo.contract import Attended, Attention, Traits
from zoo.projected import ProjectedAttention
from zoo.variants.linear import Linear
from zoo.variants.softmax import naive

HONEST = Traits(causal=True, cross=True, linear=False, stochastic=False, recurrent=False)
SELF_ONLY = Traits(causal=False, cross=False, linear=True, stochastic=False, recurrent=False)


class Honest(ProjectedAttention):
    """Softmax, literally."""

    traits = HONEST

    def attend(self, q, k, v, keep):
        return naive(q, k, v, keep, self.size.causal, 0.0)


class LeaksThroughAMaximum(Honest):
    """Scales values by a maximum over all tokens, future ones included."""

    def attend(self, q, k, v, keep):
        real = v if keep is None else v.masked_fill(~keep[:, None, :, None], 0.0)
        return super().attend(q, k, v, keep) * (1 + real.abs().amax((-2, -1), keepdim=True))


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


class QuadraticButLinear(Honest):
    """Claims a linear cost."""

    traits = Traits(causal=False, cross=True, linear=True, stochastic=False, recurrent=False)


class DetachesItsQueries(Honest):
    """The projection of queries learns nothing."""

    def attend(self, q, k, v, keep):
        return super().attend(q.detach(), k, v, keep)


class HidesALoss(Honest):
    """Returns a loss that its traits do not name."""

    def forward(self, x, context, keep):
        tokens = super().forward(x, context, keep).tokens
        return Attended(tokens, {"secret": tokens.square().mean()} if self.training else {})


class DropsInEvaluation(Honest):
    """Dropout that does not ask whether it is training."""

    def attend(self, q, k, v, keep):
        return nn.functional.dropout(super().attend(q, k, v, keep), 0.1, training=True)


class IgnoresTheContext(Honest):
    """Attends to its own input, whatever the context."""

    def forward(self, x, context, keep):
        return super().forward(x, x, None if context is not x else keep)


class CountsItsCalls(Honest):
    """Writes a buffer in forward."""

    def __init__(self, size):
        super().__init__(size)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, context, keep):
        self.calls = self.calls + 1
        return super().forward(x, context, keep)


class OverflowsWhenLoud(Honest):
    """Exponentials without a maximum."""

    def attend(self, q, k, v, keep):
        weights = (q @ k.mT).exp()
        if keep is not None:
            weights = weights * keep[:, None, None, :]
        return weights @ v / weights.sum(-1, keepdim=True).clamp_min(1e-30)


class TakesAForeignContext(Attention):
    """Claims none, and does not say no."""

    traits = SELF_ONLY

    def __init__(self, size):
        super().__init__(size)
        self.map = nn.Linear(size.dim, size.dim)

    def forward(self, x, context, keep):
        return Attended(self.map(x))


class HearsItselfOnly(Honest):
    """Its causal form looks at no other token."""

    def attend(self, q, k, v, keep):
        if self.size.causal:
            return v + 0.1 * torch.tanh(q * k)
        return super().attend(q, k, v, keep)


class DrawsFromNowhere(Honest):
    """Noise from a generator that nobody can seed."""

    traits = replace(HONEST, stochastic=True)

    def attend(self, q, k, v, keep):
        generator = torch.Generator()
        generator.seed()
        noise = torch.randn(v.shape, generator=generator).to(v.dtype) if self.training else 0.0
        return super().attend(q, k, v, keep) + noise


class HidesAWeight(Honest):
    """Draws what its state dict does not hold."""

    def __init__(self, size):
        super().__init__(size)
        self.secret = torch.randn(size.head_dim)

    def attend(self, q, k, v, keep):
        return super().attend(q, k, v, keep) + self.secret.to(v.dtype)


class Recurrent(Linear):
    """Linear attention; its claim of a linear cost takes long to prove, and is left out."""

    traits = replace(Linear.traits, linear=False)


class StepsBesideItsForward(Recurrent):
    """One step in a thousand parts too large."""

    def recur(self, q, k, v, state):
        heads, state = super().recur(q, k, v, state)
        return 1.001 * heads, state


class KeepsEveryKey(Recurrent):
    """A cache beside the sums."""

    def begin(self, batch):
        return *super().begin(batch), self.blank(batch, self.size.heads, 0, self.size.head_dim)

    def recur(self, q, k, v, state):
        heads, sums = super().recur(q, k, v, state[:1])
        return heads, (*sums, torch.cat([state[1], k], dim=2))


class WritesToItsState(Recurrent):
    """Saves the memory of a second state."""

    def recur(self, q, k, v, state):
        heads, (sums,) = super().recur(q, k, v, state)
        state[0].copy_(sums.detach())
        return heads, state


class RemembersBesideItsState(Recurrent):
    """Carries the sums itself, and hands out zeros."""

    def begin(self, batch):
        self.sums = super().begin(batch)
        return self.sums

    def recur(self, q, k, v, state):
        heads, self.sums = super().recur(q, k, v, self.sums)
        return heads, state


class PutsHeadsBeforeSamples(Recurrent):
    """Its state cannot be reordered sample by sample."""

    def begin(self, batch):
        return (super().begin(batch)[0].transpose(0, 1),)

    def recur(self, q, k, v, state):
        heads, (sums,) = super().recur(q, k, v, (state[0].transpose(0, 1),))
        return heads, (sums.transpose(0, 1),)


class RecursWithoutClaim(Recurrent):
    """Gives a state, and does not say so."""

    traits = replace(Recurrent.traits, recurrent=False)


PADDING = {"padding unfelt", "padded = truncated", "context heard"}
FUTURE = {"future unseen", "future unseen, fp32"}

LIES = {
    LeaksThroughAMaximum: ("future unseen", FUTURE),
    MasksValuesOnly: ("padding unfelt", PADDING),
    ScalesByTheBatch: ("batch-mates unfelt", PADDING | FUTURE),
    QuadraticButLinear: ("linear FLOPs", set()),
    DetachesItsQueries: ("parameters learn", {"gradients"}),
    HidesALoss: ("losses as declared", set()),
    # Whatever compares two calls finds them different.
    DropsInEvaluation: ("evaluation repeats", {check.name for check in CHECKS}),
    IgnoresTheContext: ("context heard", set()),
    CountsItsCalls: ("pure forward", set()),
    OverflowsWhenLoud: ("loud inputs", FUTURE),
    TakesAForeignContext: ("context refused", set()),
    HearsItselfOnly: ("past heard", set()),
    # Training gives something else at every call: no future is needed to move the past.
    DrawsFromNowhere: ("one seed, one result", FUTURE),
    HidesAWeight: ("state round trip", set()),
    StepsBesideItsForward: ("step = forward", set()),
    KeepsEveryKey: ("state is fixed", set()),
    WritesToItsState: ("pure step", set()),
    RemembersBesideItsState: ("pure step", set()),
    PutsHeadsBeforeSamples: ("pure step", set()),
    RecursWithoutClaim: ("recurrence refused", set()),
}
"""Which check is meant for each lie, and which others cannot but stumble over it."""
