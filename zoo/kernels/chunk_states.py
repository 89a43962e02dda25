"""The state of a linear recurrence before each chunk, and the decay within one.

    S_0 = 0        S_{t+1} = decay_t * S_t + update_t

States are only multiplied by `decay_t`, which is at most 1: nothing is divided by a product that
may have underflowed. There is one step per chunk, and no state depends on a later chunk.

Axis letters beyond the contract's: `t` chunks, `f` the second width of the state.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F


def chunk_states(
    update: Float[Tensor, "b h t e f"], decay: Float[Tensor, "#b h #t #e 1"]
) -> Float[Tensor, "b h t e f"]:
    """The state before each chunk, which adds `update` to `decay` times the state before it."""
    if torch.compiler.is_exporting():
        return by_pairs(update, decay)
    decays = decay.expand(-1, -1, update.shape[2], -1, -1).unbind(2)
    state, states = torch.zeros_like(update[:, :, 0]), []
    for added, factor in zip(update.unbind(2), decays, strict=True):
        states.append(state)
        state = factor * state + added
    return torch.stack(states, dim=2)


def pairwise_decay(log_decay: Float[Tensor, "*chunks c 1"]) -> Float[Tensor, "*chunks c c"]:
    """The product of the decays of tokens j + 1 to i of a chunk, for j <= i; else 0.

    Each is the exponential of a sum of logarithms, never of a difference of sums.
    """
    size = log_decay.shape[-2]
    sums = log_decay.expand(*(-1 for _ in log_decay.shape[:-1]), size).tril(-1).cumsum(-2)
    later = torch.ones(size, size, dtype=torch.bool, device=sums.device).triu(1)
    return sums.masked_fill(later, -torch.inf).exp()


def by_pairs(
    update: Float[Tensor, "b h t e f"], decay: Float[Tensor, "#b h #t #e 1"]
) -> Float[Tensor, "b h t e f"]:
    """The same without a loop, for any number of chunks, in O(t^2 e f) more time.

    The state before chunk t is the sum over s < t of decay_(s+1) ... decay_(t-1) update_s.
    """
    decays = decay.expand(-1, -1, update.shape[2], -1, -1)[..., 0]
    chunk = torch.arange(update.shape[2], device=update.device)
    later = (chunk[:, None] > chunk)[..., None]
    # Of t and s: the product up to decay_t. A product, not a difference of logarithms.
    products = torch.where(later, decays[:, :, :, None], 1.0).cumprod(2)
    products = F.pad(products, (0, 0, 0, 0, 1, 0))[:, :, :-1].where(later, 0.0)
    return torch.einsum("bhtse,bhsef->bhtef", products, update)
