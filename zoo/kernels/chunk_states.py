"""The state of a linear recurrence before each chunk.

    S_0 = 0        S_{t+1} = decay_t * S_t + update_t

`decay_t` is at most 1 and is only multiplied by: nothing is divided by a product that may have
underflowed. One step a chunk; a later chunk never takes part in an earlier state.

Axis letters beyond the contract's: `t` chunks, `f` the second width of the state.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def chunk_states(
    update: Float[Tensor, "b h t e f"], decay: Float[Tensor, "#b h #t #e 1"]
) -> Float[Tensor, "b h t e f"]:
    """The state before each of the t chunks.

    Args:
        update: what each chunk adds, decayed up to its end.
        decay: the factor by which each chunk reduces the state before it.
    """
    decays = decay.expand(-1, -1, update.shape[2], -1, -1).unbind(2)
    state, states = torch.zeros_like(update[:, :, 0]), []
    for added, factor in zip(update.unbind(2), decays, strict=True):
        states.append(state)
        state = factor * state + added
    return torch.stack(states, dim=2)
