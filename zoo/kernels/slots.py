"""Attention to a fixed number of slots, each a decayed sum of keys and one of values.

With write weights s_i and decays alpha_i = exp(g_i) of m slots for each token, and * by slot,

    K_i = alpha_i * K_(i-1) + s_i k_i^T             V_i = alpha_i * V_(i-1) + s_i v_i^T
    y_i = V_i^T softmax(K_i q_i)                    (Zhang et al., 2024, arXiv 2409.07146)

V_i^T p is the recurrence of `zoo.kernels.delta`. K_i q decays what is read, not what reads: of the
tokens of a chunk, with its state K and the sums L_i of g up to token i,

    K_i q_i = exp(L_i) * K q_i + sum_{j <= i} (q_i . k_j) exp(L_i - L_j) * s_j

where the decay between two tokens is a product of two factors that meet in the middle of the
smallest block of 2^l tokens with both: no argument of an exponential exceeds 0, since g <= 0. A
token with s = 0 and g = 0 changes no slot: so is padding. Time O(n (chunk + e) m), memory
O(n m log chunk + n / chunk m e) per head.

Axis letters beyond the contract's: `s` slots, `t` chunks, `c` tokens of a chunk, `f` channels of a
value.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from zoo.kernels import delta
from zoo.kernels.blocks import from_blocks, in_blocks
from zoo.kernels.chunk_states import chunk_states, from_state, pairwise_decay
from zoo.kernels.delta import Keys, Values, halves, sum_after

Slots = Float[Tensor, "b h n s"]
KeySlots = Float[Tensor, "b h s e"]
ValueSlots = Float[Tensor, "b h s f"]


def extend(
    q: Keys, k: Keys, v: Values, write: Slots, log_decay: Slots, keys: KeySlots,
    values: ValueSlots, *, chunk: int = delta.CHUNK,
) -> tuple[Values, KeySlots, ValueSlots]:  # fmt: skip
    """The outputs y_i of n tokens after slots K and V, and the slots after them."""
    # `chunk` is a power of two, and does not change the result.
    logits, keys = products(q, k, write, log_decay, keys, chunk=chunk)
    weights = logits.softmax(-1)
    y, values = delta.extend(weights, write, v, log_decay, None, None, values, chunk=chunk)
    return y, keys, values


def products(
    q: Keys, k: Keys, write: Slots, log_decay: Slots, keys: KeySlots, *, chunk: int
) -> tuple[Slots, KeySlots]:
    n = q.shape[2]
    if n == 1:
        keys = log_decay.exp().mT * keys + write.mT * k
        return q @ keys.mT, keys
    if not torch.compiler.is_exporting():
        chunk = min(chunk, 1 << (n - 1).bit_length())
    q, k, write, log_decay = (in_blocks(x, chunk) for x in (q, k, write, log_decay))
    decay = log_decay.sum(-2).exp()[..., None]
    update = (write * sum_after(log_decay).exp()).mT @ k
    past, after = from_state(chunk_states, decay, update, keys)
    logits = (q @ past.mT) * log_decay.cumsum(-2).exp() + (q * k).sum(-1, keepdim=True) * write
    within = _pairs if torch.compiler.is_exporting() else _halves
    logits = logits + within(q, k, write, log_decay)
    return from_blocks(logits, n), keys if after is None else after


def _halves(q: Tensor, k: Tensor, write: Tensor, log_decay: Tensor) -> Float[Tensor, "b h t c s"]:
    # What the right half of a block reads from the left half.
    total, half = torch.zeros_like(write), 1
    while half < q.shape[-2]:
        (_, queries), (keys, _) = halves(q, half), halves(k, half)
        (written, _), (before, after) = halves(write, half), halves(log_decay, half)
        across = (queries @ keys.mT) @ (written * sum_after(before).exp())
        across = across * after.cumsum(-2).exp()
        total = total + F.pad(across, (0, 0, half, 0)).flatten(-3, -2)
        half *= 2
    return total


def _pairs(q: Tensor, k: Tensor, write: Tensor, log_decay: Tensor) -> Float[Tensor, "b h t c s"]:
    # The exporter cannot follow the shapes of halves.
    decay = pairwise_decay(log_decay.mT[..., None]).tril(-1)
    weights = (q @ k.mT)[..., None, :, :] * decay
    return (weights * write.mT[..., None, :]).sum(-1).mT
