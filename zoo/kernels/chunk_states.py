"""The state of a linear recurrence before each chunk.

    S_0 = 0        S_{t+1} = decay_t * S_t + update_t

States are only multiplied by `decay_t`, which is at most 1: nothing is divided by a product that
may have underflowed. There is one step per chunk, and no state depends on a later chunk.

Axis letters beyond the contract's: `t` chunks, `f` the second width of the state.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def chunk_states(
    update: Float[Tensor, "b h t e f"], decay: Float[Tensor, "#b h #t #e 1"]
) -> Float[Tensor, "b h t e f"]:
    """The state before each chunk, which adds `update` to `decay` times the state before it."""
    decays = decay.expand(-1, -1, update.shape[2], -1, -1).unbind(2)
    state, states = torch.zeros_like(update[:, :, 0]), []
    for added, factor in zip(update.unbind(2), decays, strict=True):
        states.append(state)
        state = factor * state + added
    return torch.stack(states, dim=2)
