"""Liars about steps and their state."""

from dataclasses import replace

import torch

from tests.zoo.liars.honest import HONEST, Honest, Recurrent
from zoo.variants.softmax import naive


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


class StepsWithoutPlaces(Recurrent):
    """Steps as if each token were the first, which rotary positions feel."""

    def step(self, x, state):
        seen, *inner = state
        tokens, (_, *after) = super().step(x, (torch.zeros_like(seen), *inner))
        return tokens, (seen + 1, *after)
