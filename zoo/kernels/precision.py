"""Computation in single precision at least, whatever the dtype of the input and of autocast."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

TINY = 1e-12
"""Smaller norms are replaced by this one, so that the zero vector has the feature zero."""


def at_least_fp32(dtype: torch.dtype) -> torch.dtype:
    """`dtype`, or fp32 where that is wider."""
    return torch.promote_types(dtype, torch.float32)


def product_dtype(x: Tensor) -> torch.dtype:
    """The dtype of a matrix product with `x`: that of autocast where it is enabled."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


@contextmanager
def full_precision(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Disable autocast, and yield `tensors` in fp32 at least."""
    with torch.autocast(tensors[0].device.type, enabled=False):
        yield tuple(tensor.to(at_least_fp32(tensor.dtype)) for tensor in tensors)
