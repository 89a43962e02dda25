"""The state that a linear recurrence carries into each of its chunks.

    S_0 = 0        S_{t+1} = decay_t * S_t + own_t

`decay_t` is at most 1 and only ever multiplies: nothing is divided by a product that may have
vanished. One step a chunk; a later chunk never takes part in an earlier state.

Axis letters beyond the contract's: `t` chunks, `f` the width of what is carried.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def chunk_states(
    own: Float[Tensor, "b h t e f"], decay: Float[Tensor, "#b h #t #e 1"]
) -> Float[Tensor, "b h t e f"]:
    """The state before each of the t chunks.

    Args:
        own: what each chunk adds, decayed up to its end.
        decay: what each chunk leaves of the state that it is given.
    """
    decays = decay.expand(-1, -1, own.shape[2], -1, -1).unbind(2)
    state, found = torch.zeros_like(own[:, :, 0]), []
    for added, left in zip(own.unbind(2), decays, strict=True):
        found.append(state)
        state = left * state + added
    return torch.stack(found, dim=2)
