"""Softmax attention whose logits have a product of reflections between key and query.

With directions w_s and strengths b_s of tokens, and H_s = I - b_s w_s w_s^T, the logits are

    a_ij = k_j^T H_(j+1) ... H_i q_i for j <= i            (Yang et al., 2025, arXiv 2505.16381)

Equally, each token multiplies all earlier keys by its H, and then reads them: `turn`. In blocks of
c tokens, with rows q, k, w of a block, D = diag(b), L(.) the lower triangle of a matrix and L'(.)
the same without the diagonal,

    T = (I + L'(D w w^T))^(-1) D         X = T L'(w k^T)         R = L(q w^T)
    A = L(q k^T) - R X                   q' = q - R T w          k' = k - X^T w
    K <- [K (I - P)^T, k'] after each block                      P = w^T T w

the logits are A within a block, and q' K^T for the keys K of the blocks before, which the blocks so
far have turned. No H is inverted: with b = 1 it is singular. Per head, time
O(n^2 e (1 + e / c) + n c (c + e)) and memory O(n^2 (1 + e / c)); in training on a CPU that of
`PART` blocks, and O(n^2 e / (c PART)).

No key grows where |w| <= 1 and 0 <= b <= 2. w, b and keys are in fp32 at least: a w that is rounded
to bf16 can be longer than 1, and then keys grow with every token.

Axis letters beyond the contract's: `p` tokens of earlier blocks, `t` blocks, `c` tokens of a block,
`f` channels of a value, `g` channels of keys with biases.
"""

from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from zoo.kernels import eager
from zoo.kernels.blocks import in_blocks
from zoo.kernels.delta import sum_after
from zoo.recompute import recomputed

Rows = Float[Tensor, "b h n e"]
Gate = Float[Tensor, "b h n 1"]
Values = Float[Tensor, "b h n f"]

# Blocks whose weights are in memory at a time in training on a CPU; others are computed again.
PART = 8

NEVER = -1e30  # The bias of a padded key: with any other key its weight is 0


class Past(NamedTuple):
    keys: Float[Tensor, "b h p e"]
    values: Float[Tensor, "b h p f"]
    bias: Float[Tensor, "b h p 1"]


class Blocks(NamedTuple):
    queries: Float[Tensor, "b h t c g"]
    keys: Float[Tensor, "b h t c g"]
    turns: Float[Tensor, "b h t g g"]
    logits: Float[Tensor, "b h t c c"]


def attend(
    q: Rows, k: Rows, v: Values, w: Rows, strength: Gate, log_forget: Gate | None = None,
    mask: Bool[Tensor, "b n"] | None = None, past: Past | None = None, *, chunk: int,
    dropout: float = 0.0,
) -> tuple[Values, Float[Tensor, "b h m e"]]:  # fmt: skip
    """The outputs of n tokens after `past`, and all keys as the last token has turned them."""
    # Queries are scaled, directions w at most of length 1, strengths b from 0 to 2. The sum of
    # `log_forget` over j + 1 to i is added to the logit. Both are 0 at padded tokens.
    (n, width), biased = q.shape[2:], any(x is not None for x in (log_forget, mask, past))
    split = partial(in_blocks, size=min(chunk, n))
    if torch.compiler.is_exporting():
        split = partial(torch.unsqueeze, dim=2)
    blocks = _blocks(*(split(x) for x in (q, k, w, strength)))
    old, values = k[:, :, :0], split(v).flatten(2, 3)
    if biased:
        gates = torch.zeros_like(strength) if log_forget is None else log_forget
        padded = None if mask is None else split(mask[:, None, :, None].to(q.dtype)) == 0
        blocks = _with_biases(blocks, split(gates), padded)
        old = F.pad(old, (0, 2))
    later = torch.ones_like(blocks.logits[:1, :1, :1], dtype=torch.bool).triu(1)
    blocks = blocks._replace(logits=blocks.logits.masked_fill(later, -torch.inf))
    if past is not None:
        old = torch.cat([past.keys, torch.ones_like(past.bias), past.bias], dim=-1)
        values = torch.cat([past.values, values], dim=2)
    if torch.compiler.is_exporting():
        return F.dropout(blocks.logits[:, :, 0].softmax(-1), dropout) @ values, k
    keys, outputs = old, []
    trains = torch.is_grad_enabled() and eager.on_cpu(q)
    parts = list(zip(*(x.split(PART if trains else x.shape[2], 2) for x in blocks), strict=True))
    for number, part in enumerate(parts, 1):
        # The backward pass begins with the last: it would compute at once what is stored here.
        call = recomputed if number < len(parts) else lambda function, *inputs: function(*inputs)
        seen = values[:, :, : keys.shape[2] + part[0].shape[2] * part[0].shape[3]]
        out, keys = call(_attend_blocks, dropout, seen, keys, *part)
        outputs.append(out)
    return torch.cat(outputs, dim=2)[:, :, :n], keys[:, :, : old.shape[2] + n, :width]


def turn(keys: Float[Tensor, "b h p e"], w: Rows, strength: Gate) -> Float[Tensor, "b h p e"]:
    return keys - (keys @ w.mT) * (strength * w)


def _blocks(q: Tensor, k: Tensor, w: Tensor, strength: Tensor) -> Blocks:
    scaled, read = strength * w, (q @ w.mT).tril()
    rows = torch.cat([scaled, (scaled @ k.mT).tril(-1)], dim=-1)
    solved = torch.linalg.solve_triangular(scaled @ w.mT, rows, upper=False, unitriangular=True)
    maps, pairs = solved.split([w.shape[-1], k.shape[-2]], dim=-1)
    logits = q @ k.mT - read @ pairs
    return Blocks(q - read @ maps, k - pairs.mT @ w, w.mT @ maps, logits)


def _with_biases(
    blocks: Blocks, log_forget: Float[Tensor, "b h t c 1"], padded: Bool[Tensor, "b 1 t c 1"] | None
) -> Blocks:
    # The same, where the last channels of queries and keys are [sum of gates, 1] and [1, bias].
    # The bias of a key is the sum of the later gates up to the end of the last block.
    queries, keys, turns, logits = blocks
    # fp64: the difference of two sums has the digits of a gate.
    total = log_forget.double().cumsum(-2)
    logits, since = logits + (total - total.mT).to(logits.dtype), total.to(logits.dtype)
    # No later block reads the keys of an exported graph, whose only block has any length.
    later = torch.zeros_like if torch.compiler.is_exporting() else sum_after
    bias, ones = later(log_forget), torch.ones_like(since)
    if padded is not None:
        logits, bias = logits.masked_fill(padded.mT, NEVER), bias.masked_fill(padded, NEVER)
    # A block adds the sum of its gates to the biases of earlier keys.
    added = F.pad(-since[..., -1:, :], (turns.shape[-1], 1, 1 + turns.shape[-1], 0))
    turns = F.pad(turns, (0, 2, 0, 2)) + added
    queries = torch.cat([queries, since, ones], dim=-1)
    return Blocks(queries, torch.cat([keys, ones, bias], dim=-1), turns, logits)


def _attend_blocks(
    dropout: float, values: Tensor, keys: Tensor, *part: Tensor
) -> tuple[Tensor, Tensor]:
    outputs = []
    for queries, new, turns, logits in zip(*(x.unbind(2) for x in part), strict=True):
        weights = torch.cat([queries @ keys.mT, logits], dim=-1).softmax(-1)
        weights = F.dropout(weights, dropout)
        outputs.append(weights @ values[:, :, : weights.shape[-1]])
        keys = torch.cat([keys - keys @ turns.mT, new], dim=2)
    return torch.cat(outputs, dim=2), keys
