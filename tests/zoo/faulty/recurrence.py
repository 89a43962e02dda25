"""Defects of steps and their state."""

from dataclasses import replace

import torch
from torch.nn import functional as F

from tests.zoo.faulty.correct import Recurrent
from tests.zoo.faulty.heads import autocast
from tests.zoo.faulty.planted import built, steps, variant
from zoo.projection import ShortConvolution


# fmt: off
class ForgetsOldest(ShortConvolution):
    def extend(self, u, past, real=None):
        kept = torch.arange(sum(part.shape[1] for part in past))[:, None] >= 1
        return super().extend(u, tuple(part * kept for part in past), real)


def transposed(self, q, k, v, state):
    heads, (sums,) = Recurrent.recur(self, q, k, v, (state[0].transpose(0, 1),))
    return heads, (sums.transpose(0, 1),)


variant("step equals forward", "ForgetsOldestOfConvolution", Recurrent,
    __init__=built(Recurrent, lambda _, size: {"context_conv": ForgetsOldest(size, 2 * size.dim)}))
variant("side-effect-free step", "BatchIsNotFirstAxis", Recurrent, recur=transposed,
    begin=lambda self, batch: (Recurrent.begin(self, batch)[0].transpose(0, 1)))
variant("rejects recurrence", "RecurrentWithoutClaim", Recurrent,
    traits=replace(Recurrent.traits, recurrent=False))


def in_bf16(layer, x, before, tokens, after):
    return tokens, (*after[:-1], after[-1].to(layer.out.weight.dtype))


def written(part):
    """Tokens and state after writing to `part(x, before)` under `no_grad`."""

    def change(layer, x, before, tokens, after):
        if not torch.is_grad_enabled():
            part(x, before).mul_(2)
        return tokens, after

    return change


def counting(of):
    """Tokens with the positions `of(count)`."""

    def step(layer, x, before, tokens, after):
        return Recurrent.step(layer, x, (of(before[0]), *before[1:]))[0], after

    return step


steps(
    "step equals forward",
    DropsInStepsInTraining=lambda layer, x, before, tokens, after: (
        F.dropout(tokens, layer.size.dropout, layer.training), after
    ),
    DropsInStepsInEvaluation=lambda layer, x, before, tokens, after: (
        F.dropout(tokens, layer.size.dropout, not layer.training), after
    ),
    ScalesStepsOfOddWidth=lambda layer, x, before, tokens, after: (
        tokens * (1 + 0.01 * (layer.size.head_dim % 2)), after
    ),
    StepDiffersAfter1000=lambda layer, x, before, tokens, after: (
        torch.where(before[0][:, None] > 1000, 1.01 * tokens, tokens), after
    ),
    StepDiffersForManyHeads=lambda layer, x, before, tokens, after: (
        tokens * (1 + 0.01 * (layer.size.heads > 4)), after
    ),
    StopsCountingAt1000=counting(lambda count: count.clamp_max(1000)),
    KeepsStateInBf16=in_bf16,
    RoundsStepsUnderAutocast=lambda layer, x, before, tokens, after: (
        tokens, (*after[:-1], after[-1].bfloat16().to(after[-1].dtype) if autocast() else after[-1])
    ),
    IgnoresPositionsInSteps=counting(torch.zeros_like),
)  # fmt: skip
steps(
    "side-effect-free step",
    RoundsStateInBf16=in_bf16,
    WritesToLayer=lambda layer, x, before, tokens, after: (
        setattr(layer, "last", x) or tokens, after
    ),
    StepsUpToMaxLen=lambda layer, x, before, tokens, after: (
        tokens / (after[0][:, None] <= layer.size.max_len), after
    ),
    WritesStateWithoutGradients=written(lambda x, before: before[-1]),
    WritesTokenWithoutGradients=written(lambda x, before: x),
    CountsFirstSample=counting(lambda count: count[:1].expand_as(count)),
)  # fmt: skip


for name, size, grows in (
    ("AllocatesCacheForMaxLen", lambda layer: layer.size.max_len, lambda count: False),
    ("StateGrowsAfter200", lambda layer: 0, lambda count: count.max() > 200),
):

    def start(self, batch, size=size):
        return *Recurrent.start(self, batch), self.zero_state(batch, size(self), self.size.dim)

    def step(self, x, state, grows=grows):
        *inner, cache = state
        tokens, after = Recurrent.step(self, x, tuple(inner))
        cache = torch.cat([cache, x[:, None]], dim=1) if grows(inner[0]) else cache
        return tokens, (*after, cache)

    variant("constant-size state", name, Recurrent, start=start, step=step)


for name, change in (
    ("PrefillForgetsItsState", lambda n, real, state: (
        real, state if n == 1 else (torch.zeros_like(state[0]),)
    )),
    ("PrefillCountsPadding", lambda n, real, state: (None, state)),
):  # fmt: skip
    variant("prefill equals steps", name, Recurrent,
            attend_after=lambda self, q, k, v, real, state, change=change: Recurrent.attend_after(
                self, q, k, v, *change(q.shape[2], real, state)
            ))  # fmt: skip
