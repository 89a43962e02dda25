"""Tokens in blocks of one size, with zeros after the last token.

An exported graph (`torch.export`) serves every length: there a block is never shortened, and the
number of blocks is written so that the exporter derives that it exceeds 1, which would be a special
case.
"""

import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.nn import functional as F


def block_size(size: int, n: int) -> int:
    return size if torch.compiler.is_exporting() else min(size, n)


def block_count(n: int, size: int) -> int:
    # In an exported graph one or two more.
    return n // size + 2 if torch.compiler.is_exporting() else -(-n // size)


def in_blocks(x: Shaped[Tensor, "*any n e"], size: int) -> Shaped[Tensor, "*any t c e"]:
    n = x.shape[-2]
    count = block_count(n, size)
    if torch.compiler.is_exporting():
        # By index: the exporter does not derive that the lengths of the blocks add up.
        first = size * torch.arange(count, device=x.device)[:, None]
        index = first + torch.arange(size, device=x.device)
        return F.pad(x, (0, 0, 0, 2 * size))[..., index, :]
    # Padding by nothing is a copy.
    padded = F.pad(x, (0, 0, 0, count * size - n)) if count * size > n else x
    return padded.unflatten(-2, (count, size))


def from_blocks(x: Shaped[Tensor, "*any t c e"], n: int) -> Shaped[Tensor, "*any n e"]:
    tokens = x.flatten(-3, -2)
    if torch.compiler.is_exporting():
        # The exporter does not derive that a slice is shorter.
        return tokens.index_select(-2, torch.arange(n, device=x.device))
    return tokens[..., :n, :]
