"""Defects of steps and their state."""

from dataclasses import replace

import torch
from torch.nn import functional as F

from tests.zoo.faulty.correct import TRAITS, Correct, Recurrent
from tests.zoo.faulty.heads import autocast
from tests.zoo.faulty.planted import convolves, fails
from zoo.projection import ShortConvolution
from zoo.variants.softmax import Softmax, naive


@fails("constant-size state")
class CachesKeys(Recurrent):
    def begin(self, batch):
        return *super().begin(batch), self.zero_state(batch, self.size.heads, 0, self.size.head_dim)

    def recur(self, q, k, v, state):
        heads, sums = super().recur(q, k, v, state[:1])
        return heads, (*sums, torch.cat([state[1], k], dim=2))


@fails("side-effect-free step")
class KeepsStateOnLayer(Recurrent):
    """Stores the sums in an attribute of the layer, and returns zeros."""

    def begin(self, batch):
        self.sums = super().begin(batch)
        return self.sums

    def recur(self, q, k, v, state):
        heads, self.sums = super().recur(q, k, v, self.sums)
        return heads, state


@fails("side-effect-free step")
class BatchIsNotFirstAxis(Recurrent):
    """The samples of its state cannot be selected along the first axis."""

    def begin(self, batch):
        return (super().begin(batch)[0].transpose(0, 1),)

    def recur(self, q, k, v, state):
        heads, (sums,) = super().recur(q, k, v, (state[0].transpose(0, 1),))
        return heads, (sums.transpose(0, 1),)


class Forgetful(ShortConvolution):
    """Its steps forget tokens before."""

    tokens: int

    def extend(self, u, past, real=None):
        kept = torch.arange(sum(part.shape[1] for part in past))[:, None] >= self.tokens
        return super().extend(u, tuple(part * kept for part in past), real)


for name, tokens in ("ForgetsPastOfConvolution", 3), ("ForgetsOldestOfConvolution", 1):
    convolves(name, "step equals forward", Recurrent, type(name, (Forgetful,), {"tokens": tokens}))


def recurs(name, check, change, base=Recurrent):
    """A variant whose steps have `change(layer, heads, state, before)` for outputs and state."""

    def recur(self, q, k, v, state):
        return change(self, *base.recur(self, q, k, v, state), state)

    fails(check)(type(name, (base,), {"recur": recur}))


def cut(layer, heads, state, before):
    """A cache of at most 512 tokens."""
    keys, values, *recent = state
    kept = 512 - recent[0].shape[2]
    return heads, (keys[:, :, -kept:], values[:, :, -kept:], *recent)


for name, check, change in (
    ("ScalesSteps", "step equals forward",
     lambda layer, heads, state, _: (1.001 * heads, state)),
    ("WritesToState", "side-effect-free step",
     lambda layer, heads, state, before: (heads, (before[0].copy_(state[0].detach()),))),
    ("DropsInSteps", "step equals forward",
     lambda layer, heads, state, _: (F.dropout(heads, layer.size.dropout), state)),
    ("DropsInStepsInTraining", "step equals forward",
     lambda layer, heads, state, _: (
         F.dropout(heads, layer.size.dropout, layer.training), state
     )),
    ("DropsInStepsInEvaluation", "step equals forward",
     lambda layer, heads, state, _: (
         F.dropout(heads, layer.size.dropout, not layer.training), state
     )),
    ("ScalesStepsOfOddWidth", "step equals forward",
     lambda layer, heads, state, _: (heads * (1 + 0.01 * (heads.shape[-1] % 2)), state)),
    ("RoundsStateInBf16", "side-effect-free step",
     lambda layer, heads, state, _: (
         heads, tuple(part.to(layer.out.weight.dtype) for part in state)
     )),
):  # fmt: skip
    recurs(name, check, change)
recurs("CutsCacheAt512", "step equals forward", cut, Softmax)


@fails("step equals forward")
class KeepsStateInBf16(Recurrent):
    def begin(self, batch):
        return tuple(part.to(self.out.weight.dtype) for part in super().begin(batch))

    def recur(self, q, k, v, state):
        heads, after = super().recur(q, k, v, state)
        return heads, tuple(part.to(self.out.weight.dtype) for part in after)


@fails("step equals forward")
class RoundsStepsUnderAutocast(Recurrent):
    def step(self, x, state):
        tokens, (*counts, sums) = super().step(x, state)
        return tokens, (*counts, sums.bfloat16().to(sums.dtype) if autocast() else sums)


@fails("side-effect-free step")
class CountsForTheBatch(Recurrent):
    """Its number of tokens is one of all samples."""

    def start(self, batch):
        count, *inner = super().start(batch)
        return count[:1], *inner


@fails("side-effect-free step")
class CountsFirstSample(Recurrent):
    """The positions of all samples are the ones of the first."""

    def step(self, x, state):
        count, *inner = state
        tokens, (_, *after) = super().step(x, (count[:1].expand_as(count), *inner))
        return tokens, (count + 1, *after)


@fails("side-effect-free step")
class StepsUpToMaxLen(Recurrent):
    def step(self, x, state):
        tokens, after = super().step(x, state)
        return tokens / (after[0][:, None] <= self.size.max_len), after


def steps_without_gradients(name, change):
    """A variant that calls `change(x, state)` after a step under `no_grad`."""

    def step(self, x, state):
        result = Recurrent.step(self, x, state)
        if not torch.is_grad_enabled():
            change(x, state)
        return result

    fails("side-effect-free step")(type(name, (Recurrent,), {"step": step}))


steps_without_gradients("WritesStateWithoutGradients", lambda x, state: state[-1].mul_(2))
steps_without_gradients("WritesTokenWithoutGradients", lambda x, state: x.mul_(2))


@fails("rejects recurrence")
class RecurrentWithoutClaim(Recurrent):
    traits = replace(Recurrent.traits, recurrent=False)


@fails("constant-size state")
class AllocatesCacheForMaxLen(Correct):
    traits = replace(TRAITS, recurrent=True)

    def begin(self, batch):
        room = self.size.heads, self.size.max_len, self.size.head_dim
        return (
            self.zero_state(batch, *room),
            self.zero_state(batch, *room),
            self.zero_state(batch).long(),
        )

    def recur(self, q, k, v, state):
        keys, values, count = state
        slots = torch.arange(keys.shape[2])
        newest = (slots == count[:, None])[:, None, :, None]
        keys, values = torch.where(newest, k, keys), torch.where(newest, v, values)
        heads = naive(q, keys, values, slots <= count[:, None], False, 0.0)
        return heads, (keys, values, count + 1)


@fails("step equals forward")
class IgnoresPositionsInSteps(Recurrent):
    def step(self, x, state):
        count, *inner = state
        tokens, (_, *after) = super().step(x, (torch.zeros_like(count), *inner))
        return tokens, (count + 1, *after)


@fails("step equals forward")
class StepDiffersAfter200(Recurrent):
    def step(self, x, state):
        tokens, after = super().step(x, state)
        return torch.where(state[0][:, None] > 200, 1.01 * tokens, tokens), after


@fails("constant-size state")
class StateGrowsAfter200(Recurrent):
    def start(self, batch):
        return *super().start(batch), self.zero_state(batch, 0, self.size.dim)

    def step(self, x, state):
        *inner, cache = state
        tokens, after = super().step(x, tuple(inner))
        if inner[0].max() > 200:
            cache = torch.cat([cache, x[:, None]], dim=1)
        return tokens, (*after, cache)


@fails("prefill equals steps")
class PrefillForgetsItsState(Recurrent):
    def attend_after(self, q, k, v, real, state):
        start = state if q.shape[2] == 1 else (torch.zeros_like(state[0]),)
        return super().attend_after(q, k, v, real, start)


@fails("prefill equals steps")
class PrefillCountsPadding(Recurrent):
    def attend_after(self, q, k, v, real, state):
        return super().attend_after(q, k, v, None, state)
