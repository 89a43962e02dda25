"""Intermediate results that training computes again in the backward pass instead of storing them.

Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016, arXiv 1604.06174, for each layer
of an encoder. The second computation repeats the first, with the same random numbers and autocast:
outputs and gradients do not change.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.utils.checkpoint import checkpoint

RECOMPUTE = "none", "attention", "layer"
"""Of what an encoder layer may store the inputs alone: nothing; the attention; the whole layer."""

Result = TypeVar("Result")


def recomputed(function: Callable[..., Result], *inputs: Any) -> Result:
    """`function(*inputs)`; the backward pass calls it again instead of storing its intermediates.

    Parameters that `function` uses get their gradients too; they must not change in between.
    """
    if not torch.is_grad_enabled():
        return function(*inputs)
    return checkpoint(function, *inputs, use_reentrant=False)
