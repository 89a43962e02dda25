"""The keys and values of all tokens so far: the state of decoding where none of fixed size exists.

A step is pure: it changes no tensor of the state. It copies the newest keys and values, at most
`RECENT` tokens, and the others once in `RECENT` steps, where it moves the newest to them.

The dtype is the one of the products of the layer: what autocast rounds to bf16 is stored in bf16.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.contract import Keys, OneToken, State

RECENT = 128

Weights = Float[Tensor, "b h 1 m"]
Part = Float[Tensor, "b h _ e"]


def append(state: State, k: Keys, v: Keys) -> State:
    """The cache with more tokens."""
    keys, values, recent_keys, recent_values = state
    recent_keys, recent_values = _join(recent_keys, k), _join(recent_values, v)
    if recent_keys.shape[2] >= RECENT:
        keys, values = _join(keys, recent_keys), _join(values, recent_values)
        recent_keys, recent_values = recent_keys[:, :, :0], recent_values[:, :, :0]
    return keys, values, recent_keys, recent_values


def attend(state: State, q: OneToken, weigh: Callable[[Weights], Weights]) -> OneToken:
    """The sum of the values, with the weights that `weigh` makes of the products of q and keys."""
    keys, values, recent_keys, recent_values = state
    q = q.to(keys.dtype)
    weights = weigh(torch.cat([q @ keys.mT, q @ recent_keys.mT], dim=-1))
    old, new = weights.split([keys.shape[2], recent_keys.shape[2]], dim=-1)
    return old @ values + new @ recent_values


def _join(cached: Part, new: Part) -> Part:
    return torch.cat([cached, new.to(cached.dtype)], dim=2)
