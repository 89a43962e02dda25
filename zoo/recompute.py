"""Results that training computes again in the backward pass instead of storing them.

Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016, arXiv 1604.06174, for each layer
of an encoder, or each sample of a mechanism. The second computation repeats the first, with the
same random numbers and autocast: outputs and gradients do not change.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from zoo.kernels import eager

RECOMPUTE = "none", "attention", "layer"
"""Of what an encoder layer may store the inputs alone: nothing; the attention; the whole layer."""

LARGE = 2**18
"""Entries of the first input from which `sample_by_sample` computes each sample again."""

Result = TypeVar("Result")


def recomputed(function: Callable[..., Result], *inputs: Any) -> Result:
    """`function(*inputs)`; the backward pass calls it again instead of storing its intermediates.

    Parameters that `function` uses get their gradients too; they must not change in between.
    """
    if not torch.is_grad_enabled():
        return function(*inputs)
    return checkpoint(function, *inputs, use_reentrant=False)


def sample_by_sample(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """`function(*inputs)`, of which training on a CPU computes each sample again.

    The backward pass then has the intermediate results of one sample in memory. For a function
    without parameters whose samples do not depend on one another. The first axis of each input is
    the batch, or 1 for all samples alike.
    """
    batch, large = len(inputs[0]), inputs[0].numel() >= LARGE
    if batch == 1 or not large or not torch.is_grad_enabled() or not eager.on_cpu(inputs[0]):
        return function(*inputs)
    samples = zip(*(x.expand(batch, *x.shape[1:]).split(1) for x in inputs), strict=True)
    return torch.cat([recomputed(function, *sample) for sample in samples])
