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
    """`size`, or n where that is less."""
    return size if torch.compiler.is_exporting() else min(size, n)


def block_count(n: int, size: int) -> int:
    """The number of blocks that hold n tokens; in an exported graph one or two more."""
    return n // size + 2 if torch.compiler.is_exporting() else -(-n // size)


def in_blocks(x: Shaped[Tensor, "*any n e"], size: int) -> Shaped[Tensor, "*any t c e"]:
    """`x` in t blocks of c = `size` tokens."""
    n = x.shape[-2]
    count = block_count(n, size)
    # Padding by nothing is a copy.
    padded = F.pad(x, (0, 0, 0, count * size - n)) if count * size > n else x
    return padded.unflatten(-2, (count, size))
