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


@fails("side-effect-free step")
class CountsForTheBatch(Recurrent):
    """Its number of tokens is one of all samples."""

    def start(self, batch):
        count, *inner = super().start(batch)
        return count[:1], *inner


def rounded(layer, x, before, tokens, after):
    *counts, sums = after
    return tokens, (*counts, sums.bfloat16().to(sums.dtype) if autocast() else sums)


def differing_after(count):
    def change(layer, x, before, tokens, after):
        return torch.where(before[0][:, None] > count, 1.01 * tokens, tokens), after

    return change


def without_gradients(write):
    """Calls `write(x, before)` under `no_grad`."""

    def change(layer, x, before, tokens, after):
        if not torch.is_grad_enabled():
            write(x, before)
        return tokens, after

    return change


for name, check, change in (
    ("RoundsStepsUnderAutocast", "step equals forward", rounded),
    ("StepDiffersAfter200", "step equals forward", differing_after(200)),
    ("StepDiffersAfter1000", "step equals forward", differing_after(1000)),
    ("StepsUpToMaxLen", "side-effect-free step",
     lambda layer, x, before, tokens, after: (
         tokens / (after[0][:, None] <= layer.size.max_len), after
     )),
    ("WritesStateWithoutGradients", "side-effect-free step",
     without_gradients(lambda x, before: before[-1].mul_(2))),
    ("WritesTokenWithoutGradients", "side-effect-free step",
     without_gradients(lambda x, before: x.mul_(2))),
):  # fmt: skip

    def step(self, x, state, change=change):
        return change(self, x, state, *Recurrent.step(self, x, state))

    fails(check)(type(name, (Recurrent,), {"step": step}))


for name, check, of in (
    # The positions of all samples are the ones of the first.
    ("CountsFirstSample", "side-effect-free step", lambda count: count[:1].expand_as(count)),
    ("IgnoresPositionsInSteps", "step equals forward", torch.zeros_like),
):

    def step(self, x, state, of=of):
        count, *inner = state
        tokens, (_, *after) = Recurrent.step(self, x, (of(count), *inner))
        return tokens, (count + 1, *after)

    fails(check)(type(name, (Recurrent,), {"step": step}))


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


for name, change in (
    ("PrefillForgetsItsState", lambda n, real, state: (
        (real, state if n == 1 else (torch.zeros_like(state[0]),))
    )),
    ("PrefillCountsPadding", lambda n, real, state: (None, state)),
):  # fmt: skip

    def attend_after(self, q, k, v, real, state, change=change):
        return Recurrent.attend_after(self, q, k, v, *change(q.shape[2], real, state))

    fails("prefill equals steps")(type(name, (Recurrent,), {"attend_after": attend_after}))
