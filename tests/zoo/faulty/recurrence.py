"""Defects of steps and their state."""

from dataclasses import replace

import torch

from tests.zoo.faulty.correct import TRAITS, Correct, Recurrent
from zoo.variants.softmax import naive


class ScalesSteps(Recurrent):
    """The output of a step is too large by one part in a thousand."""

    def recur(self, q, k, v, state):
        heads, state = super().recur(q, k, v, state)
        return 1.001 * heads, state


class CachesKeys(Recurrent):
    """Its state contains a cache of all keys."""

    def begin(self, batch):
        return *super().begin(batch), self.zero_state(batch, self.size.heads, 0, self.size.head_dim)

    def recur(self, q, k, v, state):
        heads, sums = super().recur(q, k, v, state[:1])
        return heads, (*sums, torch.cat([state[1], k], dim=2))


class WritesToState(Recurrent):
    """Overwrites the state that it is given."""

    def recur(self, q, k, v, state):
        heads, (sums,) = super().recur(q, k, v, state)
        state[0].copy_(sums.detach())
        return heads, state


class KeepsStateOnLayer(Recurrent):
    """Stores the sums in an attribute of the layer, and returns zeros."""

    def begin(self, batch):
        self.sums = super().begin(batch)
        return self.sums

    def recur(self, q, k, v, state):
        heads, self.sums = super().recur(q, k, v, self.sums)
        return heads, state


class BatchIsNotFirstAxis(Recurrent):
    """The samples of its state cannot be selected along the first axis."""

    def begin(self, batch):
        return (super().begin(batch)[0].transpose(0, 1),)

    def recur(self, q, k, v, state):
        heads, (sums,) = super().recur(q, k, v, (state[0].transpose(0, 1),))
        return heads, (sums.transpose(0, 1),)


class RecurrentWithoutClaim(Recurrent):
    """Returns a state without the claim `recurrent`."""

    traits = replace(Recurrent.traits, recurrent=False)


class AllocatesCacheForMaxLen(Correct):
    """Allocates a cache of all keys and values for `max_len` tokens, and claims `recurrent`."""

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


class IgnoresPositionsInSteps(Recurrent):
    """Steps with the position of the first token, which is wrong under rotary positions."""

    def step(self, x, state):
        count, *inner = state
        tokens, (_, *after) = super().step(x, (torch.zeros_like(count), *inner))
        return tokens, (count + 1, *after)
