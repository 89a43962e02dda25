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


class Bidirectional(Honest):
    """The same without a causal form, for lies that need none: half as much to check."""

    traits = replace(HONEST, causal=False)


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


class QuadraticInItsSize(Honest):
    """Pads its keys to the most tokens it may get."""

    traits = QuadraticButLinear.traits

    def attend(self, q, k, v, keep):
        missing = self.size.max_len - k.shape[2]
        real = torch.ones(k.shape[0], k.shape[2], dtype=torch.bool) if keep is None else keep
        k, v = (nn.functional.pad(part, (0, 0, 0, missing)) for part in (k, v))
        return super().attend(q, k, v, nn.functional.pad(real, (0, missing)))


class CachesBeforehand(Honest):
    """Room for every key and value, made before the first token, and called a recurrence."""

    traits = replace(HONEST, recurrent=True)

    def begin(self, batch):
        room = self.size.heads, self.size.max_len, self.size.head_dim
        return self.blank(batch, *room), self.blank(batch, *room), self.blank(batch).long()

    def recur(self, q, k, v, state):
        keys, values, seen = state
        place = torch.arange(keys.shape[2])
        here = (place == seen[:, None])[:, None, :, None]
        keys, values = torch.where(here, k, keys), torch.where(here, v, values)
        heads = naive(q, keys, values, place <= seen[:, None], False, 0.0)
        return heads, (keys, values, seen + 1)


class CountsTheFuture(Honest):
    """Hears how many tokens are to come, though not what they are."""

    def attend(self, q, k, v, keep):
        count = k.shape[2] if keep is None else keep.sum(1)[:, None, None, None].to(v.dtype)
        return super().attend(q, k, v, keep) * (1 + count / 100)


class HearsTheFirstTokenOnly(Honest):
    """Its causal form looks at itself and at token 0."""

    def attend(self, q, k, v, keep):
        if self.size.causal:
            real = 1 if keep is None else keep[:, None, :1, None]
            return v + real * torch.tanh(q * k[:, :, :1])
        return super().attend(q, k, v, keep)


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

    def forward(self, x, context, keep):
        self.log.append(x.shape)
        return super().forward(x, context, keep)


class TurnsByThePaddedPlace(Honest):
    """Its rotary positions count padding."""

    def _project(self, x, context, place=None):
        return super()._project(x, context)


class CutsOffNothing(Bidirectional):
    """Pads to whole blocks of 64, and cuts the surplus off by its negative, be it zero."""

    def attend(self, q, k, v, keep):
        surplus = -q.shape[2] % 64
        padded = nn.functional.pad(super().attend(q, k, v, keep), (0, 0, 0, surplus))
        return padded[:, :, :-surplus]


class WidensHalfPrecision(Bidirectional):
    """What comes in as bf16 goes out as fp32."""

    def forward(self, x, context, keep):
        tokens = super().forward(x, context, keep).tokens
        return Attended(tokens.to(torch.promote_types(tokens.dtype, torch.float32)))


class DividesByNothing(Bidirectional):
    """Where no key is real, its weights are 0 / 0."""

    def attend(self, q, k, v, keep):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if keep is not None:
            scores = scores.masked_fill(~keep[:, None, None, :], -torch.inf)
        return scores.softmax(-1) @ v


class SubtractsTheFuture(Honest):
    """Its sum over the past is the sum over all less that over the future."""

    def attend(self, q, k, v, keep):
        heads = super().attend(q, k, v, keep)
        if not self.size.causal:
            return heads
        real = v if keep is None else v.masked_fill(~keep[:, None, :, None], 0.0)
        future = real.flip(2).cumsum(2).flip(2) - real
        return heads + 0.1 * (real.sum(2, keepdim=True) - future)


class StandsNowhere(Bidirectional):
    """Takes rotary positions, and turns nothing by them."""

    def placed(self, x, place=None):
        return x


class BuildsWhatItDoesNotClaim(Bidirectional):
    """Asked for a causal form, it gives the other without a word."""

    def __init__(self, size):
        super().__init__(replace(size, causal=False))


class LouderInTraining(Bidirectional):
    """Trains on something else than it is evaluated on, and claims no chance."""

    def attend(self, q, k, v, keep):
        return super().attend(q, k, v, keep) * (1.1 if self.training else 1.0)


class BranchesOnItsInput(Bidirectional):
    """Which way it takes is known when the numbers are: no graph holds both."""

    def attend(self, q, k, v, keep):
        return super().attend(q if q.abs().max() < 1e4 else q.clamp(-1e4, 1e4), k, v, keep)


class AnswersOtherwiseWhenCompiled(Bidirectional):
    """Its graph is one, and computes something else."""

    def attend(self, q, k, v, keep):
        return super().attend(q, k, v, keep) * (1.1 if torch.compiler.is_compiling() else 1.0)


class WritesIntoOneBlank(Bidirectional):
    """Its room for results is made for one set of parameters."""

    def attend(self, q, k, v, keep):
        return torch.zeros(q.shape, dtype=q.dtype).copy_(super().attend(q, k, v, keep))


class MasksEveryPair(Linear):
    """Few operations, and a matrix of all pairs that it hardly needs."""

    traits = QuadraticButLinear.traits

    def attend(self, q, k, v, keep):
        pairs = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
        return super().attend(q, k, v, keep) * pairs.any(1)[:, None]


class MeanOfAll(Attention):
    """Honest, and without a parameter."""

    traits = replace(SELF_ONLY, linear=True)

    def forward(self, x, context, keep):
        self.require_self(x, context)
        turned = self.placed(x[:, None])[:, 0] if keep is None else self._by_rank(x, keep)
        real = torch.ones(x.shape[:2], dtype=x.dtype) if keep is None else keep.to(x.dtype)
        total = turned.masked_fill(real[..., None] == 0, 0.0).sum(1, keepdim=True)
        return Attended(x + total / real.sum(1)[:, None, None].clamp_min(1))

    def _by_rank(self, x, keep):
        return self.placed(x[:, None], (keep.cumsum(1) - 1).clamp_min(0))[:, 0]


PADDING = {"padding unfelt", "padded = truncated", "context heard"}
FUTURE = {"future unseen", "future unseen, fp32"}

LIES = {
    LeaksThroughAMaximum: ("future unseen", FUTURE),
    MasksValuesOnly: ("padding unfelt", PADDING),
    ScalesByTheBatch: ("batch-mates unfelt", PADDING | FUTURE),
    QuadraticButLinear: ("linear FLOPs", set()),
    DetachesItsQueries: ("parameters learn", {"gradients"}),
    HidesALoss: ("losses as declared", {"padding unfelt"}),
    # Whatever compares two calls finds them different.
    DropsInEvaluation: ("evaluation repeats", {check.name for check in CHECKS}),
    IgnoresTheContext: ("context heard", set()),
    CountsItsCalls: ("pure forward", set()),
    OverflowsWhenLoud: ("loud inputs", FUTURE | PADDING),
    TakesAForeignContext: ("context refused", set()),
    HearsItselfOnly: ("past heard", set()),
    # Training gives something else at every call: nothing is needed to move what it gives.
    DrawsFromNowhere: (
        "one seed, one result",
        FUTURE | {"padding unfelt", "batch-mates unfelt", "gradients"},
    ),
    HidesAWeight: ("state round trip", set()),
    StepsBesideItsForward: ("step = forward", set()),
    KeepsEveryKey: ("state is fixed", set()),
    WritesToItsState: ("pure step", set()),
    RemembersBesideItsState: ("pure step", set()),
    PutsHeadsBeforeSamples: ("pure step", set()),
    RecursWithoutClaim: ("recurrence refused", set()),
    MasksInEvaluationOnly: (
        "padding unfelt",
        {"padded = truncated", "training = evaluation", "future unseen"},
    ),
    MasksInDoublePrecisionOnly: ("padding unfelt", {"padded = truncated"}),
    LosesOverPadding: ("padding unfelt", set()),
    ScalesByTheBatchInTraining: ("batch-mates unfelt", PADDING | FUTURE),
    QuadraticInItsSize: ("linear FLOPs", set()),
    CachesBeforehand: ("state is fixed", set()),
    CountsTheFuture: ("future unseen", set()),
    HearsTheFirstTokenOnly: ("past heard", PADDING | {"order felt"}),
    TurnsItsGradients: ("gradients", set()),
    LogsItsCalls: ("pure forward", set()),
    TurnsByThePaddedPlace: ("padded = truncated", {"step = forward"}),
    CutsOffNothing: ("lengths", set()),
    WidensHalfPrecision: ("precisions", set()),
    DividesByNothing: ("all padded", set()),
    SubtractsTheFuture: ("future unseen, fp32", set()),
    StandsNowhere: ("order felt", set()),
    BuildsWhatItDoesNotClaim: ("causality refused", set()),
    LouderInTraining: ("training = evaluation", set()),
    BranchesOnItsInput: ("compiles", set()),
    AnswersOtherwiseWhenCompiled: ("compiles", set()),
    WritesIntoOneBlank: ("vmap", set()),
    MasksEveryPair: ("linear memory", set()),
}
"""Which check is meant for each lie, and which others cannot but stumble over it."""
