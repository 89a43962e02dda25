"""The state of a linear recurrence before each chunk, and the decay within one.

    S_0 = 0        S_{t+1} = decay_t * S_t + update_t        or factor_t S_t + update_t

States are only multiplied by `decay_t`, which is at most 1: nothing is divided by a product that
may have underflowed. There is one step per chunk, and no state depends on a later chunk.

Axis letters beyond the contract's: `t` chunks, `f` the second width of the state.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

# Doublings of chunks in an exported graph: 2^14 chunks of 64 tokens are a million tokens.
DOUBLINGS = 14

States = Float[Tensor, "b h t e f"]


def chunk_states(decay: Float[Tensor, "#b h #t #e 1"], update: States) -> States:
    """The state before each chunk, which adds `update` to `decay` times the state before it."""
    if torch.compiler.is_exporting():
        return by_pairs(decay, update)
    return one_by_one(torch.mul, decay.expand(-1, -1, update.shape[2], -1, -1), update)


def mapped_states(factor: Float[Tensor, "b h t e e"], update: States) -> States:
    """The state before each chunk, which maps a state S to factor S + update."""
    if torch.compiler.is_exporting():
        return by_doubling(factor, update)
    return one_by_one(torch.matmul, factor, update)


def from_state(
    states_of: Callable[[Tensor, Tensor], States], factors: Tensor, update: States,
    state: Float[Tensor, "b h e f"] | None,
) -> tuple[States, Float[Tensor, "b h e f"] | None]:  # fmt: skip
    """The state before each chunk, from `state` on, and after the last; None without a state."""
    if state is None:
        return states_of(factors, update), None
    # A chunk before the first adds the state; one after the last shows the end.
    update = torch.cat([state[:, :, None], update, torch.zeros_like(state)[:, :, None]], dim=2)
    states = states_of(F.pad(factors, (0, 0, 0, 0, 1, 1)), update)
    return states[:, :, 1:-1], states[:, :, -1]


def one_by_one(
    advance: Callable[[Tensor, Tensor], Tensor], factors: Tensor, update: States
) -> States:
    state, states = torch.zeros_like(update[:, :, 0]), []
    for factor, added in zip(factors.unbind(2), update.unbind(2), strict=True):
        states.append(state)
        state = advance(factor, state) + added
    return torch.stack(states, dim=2)


def pairwise_decay(log_decay: Float[Tensor, "*chunks c 1"]) -> Float[Tensor, "*chunks c c"]:
    """The product of the decays of tokens j + 1 to i of a chunk, for j <= i; else 0."""
    # Each is the exponential of a sum of logarithms, never of a difference of sums.
    size = log_decay.shape[-2]
    sums = log_decay.expand(*(-1 for _ in log_decay.shape[:-1]), size).tril(-1).cumsum(-2)
    later = torch.ones(size, size, dtype=torch.bool, device=sums.device).triu(1)
    return sums.masked_fill(later, -torch.inf).exp()


def by_pairs(decay: Float[Tensor, "#b h #t #e 1"], update: States) -> States:
    """`chunk_states` without a loop, for any number of chunks, in O(t^2 e f) more time."""
    # The state before chunk t is the sum over s < t of decay_(s+1) ... decay_(t-1) update_s.
    decays = decay.expand(-1, -1, update.shape[2], -1, -1)[..., 0]
    chunk = torch.arange(update.shape[2], device=update.device)
    later = (chunk[:, None] > chunk)[..., None]
    # Of t and s: the product up to decay_t. A sum of logarithms, which is no difference of sums:
    # ONNX has no cumulative product.
    logs = decays.clamp_min(torch.finfo(decays.dtype).tiny).log()
    products = torch.where(later, logs[:, :, :, None], 0.0).cumsum(2).exp()
    products = F.pad(products, (0, 0, 0, 0, 1, 0))[:, :, :-1].where(later, 0.0)
    return torch.einsum("bhtse,bhsef->bhtef", products, update)


def by_doubling(factor: Float[Tensor, "b h t e e"], update: States) -> States:
    """`mapped_states` without a loop over chunks, for up to 2^`DOUBLINGS` of them."""
    # After step i a chunk has the maps of the 2^i chunks up to it, composed (Hillis, Steele, 1986).
    chunk = torch.arange(update.shape[2], device=update.device)
    for shift in [1 << i for i in range(DOUBLINGS)]:
        before = (chunk - shift).clamp_min(0)
        is_first = (chunk < shift)[:, None, None]
        earlier = update.index_select(2, before).masked_fill(is_first, 0.0)
        update = factor @ earlier + update
        factor = (factor @ factor.index_select(2, before)).where(~is_first, 0.0)
    before = update.index_select(2, (chunk - 1).clamp_min(0))
    return before.masked_fill((chunk < 1)[:, None, None], 0.0)
