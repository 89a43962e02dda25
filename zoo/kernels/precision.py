"""Computation in single precision at least, whatever the dtype of the input and of autocast."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

TINY = 1e-12
"""Smaller norms are replaced by this one, so that the zero vector has the feature zero."""


def at_least_fp32(dtype: torch.dtype) -> torch.dtype:
    """`dtype`, or fp32 where that is wider."""
    return torch.promote_types(dtype, torch.float32)


def product_dtype(x: Tensor) -> torch.dtype:
    """The dtype of a matrix product with `x`: the dtype of autocast where it is enabled."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Disable autocast on the device of `x`.

    Where it is disabled already, there is no context: a graph with one cannot be saved.
    """
    kind = x.device.type
    enabled = torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if enabled else nullcontext()


@contextmanager
def full_precision(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Disable autocast, and yield `tensors` in fp32 at least."""
    with without_autocast(tensors[0]):
        yield tuple(tensor.to(at_least_fp32(tensor.dtype)) for tensor in tensors)
