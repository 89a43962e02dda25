"""A recurrence over tokens that decays its state, erases the value of a key, and writes another.

With a decay alpha_i = exp(g_i) for each channel of a key, an erased key r_i, and a write gate w_i
for each channel of a value, the state of a head, (e, f), and its outputs are

    S'_i = diag(alpha_i) S_(i-1)
    S_i  = S'_i + k_i (w_i * v_i - S'_i^T r_i)^T        y_i = S_i^T q_i

With r = b * k, of an erase gate b, that is Gated DeltaNet-2 (arXiv 2605.22791). b = w = beta is
Kimi Delta Attention (2510.26692), with one alpha for all channels Gated DeltaNet (2412.06464), with
alpha = 1 DeltaNet (2406.06484); r = 0 is gated linear attention (2312.06635), with one alpha SSD
(2405.21060), a constant one retention. Two steps for each token are RWKV-7 (2503.14456).
A token with k = 0 and g = 0 leaves the state as it is: so is padding. g is at most 0.

    step      one token at a time, the definition
    chunked   C tokens at a time by matrix products, for compilers, transforms and other devices
    on a CPU  token by token, forward and backward: `recurrence`

Chunked (Yang et al., 2024, arXiv 2406.06484, section 3), with S the state before a chunk, L_i the
sum of g up to token i of the chunk and D_ij = exp(L_i - L_j):

    A_ij = sum_c r_ic k_jc D_ijc  for j < i             P_ij = sum_c q_ic k_jc D_ijc  for j <= i
    U = (I + A)^-1 (w * V - (R * exp(L)) S)             Y = (Q * exp(L)) S + P U
    S <- exp(L_C) * S + (K * exp(L_C - L))^T U

U is linear in S, so that a chunk maps S to G S + H, and only that runs over the chunks one by one.
No difference of sums is the argument of an exponential, and no argument exceeds 0: L_i - L_j is the
sum of g between both tokens, for one alpha by a sum for each pair, for one of each channel as a
product of two factors that meet in the middle of the smallest block of 2^l tokens with both.
Time O(n (C (e + f) + e f)), memory O(n (C + e log C) + n / C (e + f) e) per head.

Axis letters beyond the contract's: `f` channels of a value, `t` chunks, `c` tokens of a chunk, `r`
kinds of rows, `w` tokens of half a block.
"""

from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from zoo.kernels.blocks import from_blocks, in_blocks
from zoo.kernels.chunk_states import chunk_states, from_state, mapped_states, pairwise_decay
from zoo.kernels.recurrence import token_sums, token_sums_after

CHUNK = 64

Keys = Float[Tensor, "b h n e"]
Values = Float[Tensor, "b h n f"]
Gate = Float[Tensor, "#b #h #n #e"]  # The decay of a key, of each channel or of all together
ValueGate = Float[Tensor, "#b #h #n #f"]
State = Float[Tensor, "b h e f"]
Rows = Float[Tensor, "*r b h t c e"]
Pairs = Float[Tensor, "*r b h t c c"]


def attend(
    q: Keys, k: Keys, v: Values, log_decay: Gate, erased: Keys | None, write: ValueGate | None,
    *, chunk: int = CHUNK, causal: bool = True,
) -> Values:  # fmt: skip
    """The outputs y_i; r = 0 without `erased`, w = 1 without `write`."""
    # Otherwise than `causal` it adds the same of the reversed sequence, over j > i, which is
    # defined for r = 0 alone. `chunk` is a power of two, and does not change the result.
    inputs = with_gates(q, k, v, log_decay, erased, write)
    if len(inputs) == 4:
        return token_sums(partial(decayed_chunks, chunk=chunk, causal=causal), causal, *inputs)
    return token_sums(partial(chunked, chunk=chunk), True, *inputs)


def extend(
    q: Keys, k: Keys, v: Values, log_decay: Gate, erased: Keys | None, write: ValueGate | None,
    state: State, *, chunk: int = CHUNK,
) -> tuple[Values, State]:  # fmt: skip
    inputs = with_gates(q, k, v, log_decay, erased, write)
    return token_sums_after(partial(chunks_after, chunk=chunk), state, *inputs)


def with_gates(
    q: Keys, k: Keys, v: Values, log_decay: Gate, erased: Keys | None, write: ValueGate | None
) -> tuple[Tensor, ...]:
    # Neither an erased key nor a gate if r = 0.
    if erased is None:
        return q, k, v if write is None else write * v, log_decay
    return q, k, v, log_decay, erased, q.new_ones(1, 1, 1, 1) if write is None else write


def step(
    q: Keys, k: Keys, v: Values, log_decay: Gate, erased: Keys | None, write: ValueGate | None,
    state: State,
) -> tuple[Float[Tensor, "b h 1 f"], State]:  # fmt: skip
    output = q
    for i in range(k.shape[2]):
        now: list[Any] = [
            x if x is None or x.shape[2] == 1 else x[:, :, i, None]
            for x in (q, k, v, log_decay, erased, write)
        ]
        query, key, value, decay, read, gate = now
        state = decay.exp().mT * state
        written = value if gate is None else gate * value
        if read is not None:
            written = written - read @ state
        state = state + key.mT * written
        output = query @ state
    return output, state


def chunked(*inputs: Tensor | None, chunk: int = CHUNK, strict: bool = False) -> Values:
    # With `strict` without the term of j = i.
    return chunks_after(*cast(Any, inputs), state=None, chunk=chunk, strict=strict)[0]


def chunks_after(
    q: Keys, k: Keys, v: Values, log_decay: Gate, erased: Keys | None = None,
    write: ValueGate | None = None, *, state: State | None, chunk: int, strict: bool = False,
) -> tuple[Values, Any]:  # fmt: skip
    # The state is None without one before.
    n = q.shape[2]
    if not torch.compiler.is_exporting():
        chunk = min(chunk, 1 << (n - 1).bit_length())
    v = v if write is None else write * v
    tokens = [q, k, v, log_decay.expand(*q.shape[:3], -1)]
    tokens += [] if erased is None else [erased]
    q, k, v, log_decay, *reads = (in_blocks(x, chunk) for x in tokens)
    from_start, to_end = log_decay.cumsum(-2).exp(), k * sum_after(log_decay).exp()
    decay = log_decay.sum(-2).exp()[..., None]
    weights = pairs(torch.stack([q, *reads]), k, log_decay)
    if reads:
        rows = torch.cat([v, reads[0] * from_start], dim=-1)
        solved = torch.linalg.solve_triangular(weights[1], rows, upper=False, unitriangular=True)
        values, keys = solved.split([v.shape[-1], k.shape[-1]], dim=-1)
        decays = torch.diag_embed(decay[..., 0].expand(k[..., 0, :].shape))
        factors = decays - to_end.mT @ keys
        past, state = from_state(mapped_states, factors, to_end.mT @ values, state)
        v = values - keys @ past
    else:
        past, state = from_state(chunk_states, decay, to_end.mT @ v, state)
    sums = (q * from_start) @ past + weights[0] @ v
    if not strict:
        sums = sums + (q * k).sum(-1, keepdim=True) * v
    return from_blocks(sums, n), state


def decayed_chunks(
    q: Keys, k: Keys, v: Values, log_decay: Gate, *, chunk: int, causal: bool
) -> Values:
    sums = chunked(q, k, v, log_decay, None, None, chunk=chunk)
    if causal:
        return sums
    q, k, v, log_decay = (x.flip(2) for x in (q, k, v, log_decay))
    return sums + chunked(q, k, v, log_decay, None, None, chunk=chunk, strict=True).flip(2)


def pairs(rows: Rows, keys: Float[Tensor, "b h t c e"], log_decay: Tensor) -> Pairs:
    """The sums over channels of rows_i * keys_j * D_ij for j < i, else 0."""
    if log_decay.shape[-1] > 1:
        if torch.compiler.is_exporting():
            return pairs_by_channels(rows, keys, log_decay)
        return pairs_by_halves(rows, keys, log_decay)
    return (rows @ keys.mT) * pairwise_decay(log_decay).tril(-1)


def pairs_by_halves(rows: Rows, keys: Tensor, log_decay: Tensor) -> Pairs:
    """The same with a decay for each channel."""
    # A pair is computed where j is in the left half of a block and i in the right half.
    blocks = rows.new_zeros(*rows.shape[:-1], 1, 1)
    half = 1
    while half < keys.shape[-2]:
        (left, _), (_, right) = halves(keys, half), halves(rows, half)
        before, after = halves(log_decay, half)
        across = (right * after.cumsum(-2).exp()) @ (left * sum_after(before).exp()).mT
        upper, lower = blocks.unflatten(-3, (-1, 2)).unbind(-3)
        blocks = torch.cat([F.pad(upper, (0, half)), torch.cat([across, lower], dim=-1)], dim=-2)
        half *= 2
    return blocks.squeeze(-3)


def pairs_by_channels(rows: Rows, keys: Tensor, log_decay: Tensor) -> Pairs:
    # The exporter cannot follow the shapes of products of matrices.
    decay = pairwise_decay(log_decay.mT[..., None]).tril(-1)
    return (rows.mT[..., None] * keys.mT[..., None, :] * decay).sum(-3)


def halves(
    x: Float[Tensor, "*any c e"], half: int
) -> tuple[Float[Tensor, "*any s w e"], Float[Tensor, "*any s w e"]]:
    left, right = x.unflatten(-2, (-1, 2, half)).unbind(-3)
    return left, right


def sum_after(x: Float[Tensor, "*any c e"]) -> Float[Tensor, "*any c e"]:
    later = F.pad(x[..., 1:, :], (0, 0, 0, 1))
    return later.flip(-2).cumsum(-2).flip(-2)
