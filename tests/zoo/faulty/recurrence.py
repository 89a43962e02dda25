"""Defects of steps and their state."""

from dataclasses import replace

import torch

from tests.zoo.faulty.correct import TRAITS, Correct, Recurrent
from tests.zoo.faulty.planted import fails
from zoo.variants.softmax import naive


@fails("step equals forward")
class ScalesSteps(Recurrent):
    def recur(self, q, k, v, state):
        heads, state = super().recur(q, k, v, state)
        return 1.001 * heads, state


@fails("constant-size state")
class CachesKeys(Recurrent):
    def begin(self, batch):
        return *super().begin(batch), self.zero_state(batch, self.size.heads, 0, self.size.head_dim)

    def recur(self, q, k, v, state):
        heads, sums = super().recur(q, k, v, state[:1])
        return heads, (*sums, torch.cat([state[1], k], dim=2))


@fails("side-effect-free step")
class WritesToState(Recurrent):
    def recur(self, q, k, v, state):
        heads, (sums,) = super().recur(q, k, v, state)
        state[0].copy_(sums.detach())
        return heads, state


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
