"""Dropout, and its sum with a residual, in one pass over the tensor on a CPU.

Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", JMLR 2014:

    y_i = x_i / (1 - p) with probability 1 - p, else 0

PyTorch draws a mask on one thread and stores it in the dtype of x: at p = 0.1 that is 32 % of a
training step of `primal` (ListOps, one thread, bf16; docs/decisions/0022-dropout-on-a-cpu.md).
Here an entry is dropped if 16 random bits are below t = round(65536 p); kept entries are multiplied
by 65536 / (65536 - t), so that the expectation is x. The bits follow from one seed, drawn from
PyTorch's default generator, and the index of the entry: nothing is stored, and the backward pass
computes them again.

Elsewhere than on a CPU, and where a compiler or a function transform traces, this is `F.dropout`.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.kernels import eager
from zoo.kernels.threads import as_array, share

LEVELS = 2**16
"""Number of values of the bits that are drawn for an entry."""

BLOCKS = 64
"""Blocks of `cpu_loops.BLOCK` entries that are worth another thread."""

DTYPES = (torch.float32, torch.float64, torch.bfloat16)

Floats = Float[Tensor, "..."]


class Dropout(nn.Dropout):
    """`nn.Dropout`, with another generator of masks on a CPU, and never in place."""

    def forward(self, input: Floats) -> Floats:
        """Return `input` with entries dropped; in evaluation mode `input` itself."""
        return dropout(input, self.p) if self.training else input

    def add(self, residual: Floats, x: Floats) -> Floats:
        """Return residual + forward(x)."""
        return add_dropout(residual, x, self.p) if self.training else residual + x


def dropout(x: Floats, p: float) -> Floats:
    """`x` with entries dropped with probability `p`, in [0, 1], and the others scaled."""
    threshold = round(LEVELS * p)
    if threshold == 0:
        return x
    if not _can_run(threshold, x):
        return F.dropout(x, p)
    return _Kept.apply(x, _draw_seed(), threshold, x.dtype)


def add_dropout(residual: Floats, x: Floats, p: float) -> Floats:
    """The sum residual + dropout(x, p), in the wider dtype of the two."""
    threshold = round(LEVELS * p)
    wider = torch.promote_types(residual.dtype, x.dtype)
    same = wider is residual.dtype and residual.shape == x.shape
    if not (same and _can_run(threshold, residual, x)):
        return residual + dropout(x, p)
    return _Sum.apply(residual, x, _draw_seed(), threshold)


def _can_run(threshold: int, *tensors: Tensor) -> bool:
    # A subclass of Tensor may have no memory.
    plain = all(type(x) is Tensor and x.dtype in DTYPES for x in tensors)
    return plain and 0 < threshold < LEVELS and all(map(eager.on_cpu, tensors))


def _draw_seed() -> int:
    return int(torch.empty((), dtype=torch.int64).random_())


class _Kept(torch.autograd.Function):
    """The map from x to its kept entries, scaled: linear and symmetric, so also its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seed: int, threshold: int, dtype: torch.dtype) -> Tensor:
        ctx.constants = seed, threshold, x.dtype
        return _run(x, None, seed, threshold, dtype)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        return _Kept.apply(gradient, *ctx.constants), None, None, None


class _Sum(torch.autograd.Function):
    """The residual and the kept entries of x, scaled."""

    @staticmethod
    def forward(ctx: Any, residual: Tensor, x: Tensor, seed: int, threshold: int) -> Tensor:
        ctx.constants = seed, threshold, x.dtype
        return _run(x, residual, seed, threshold, residual.dtype)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        return gradient, _Kept.apply(gradient, *ctx.constants), None, None


def _run(
    x: Tensor, residual: Tensor | None, seed: int, threshold: int, dtype: torch.dtype
) -> Tensor:
    # Compilers take a while to import, and models without dropout need none.
    from zoo.kernels import cpu_loops

    out = torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)
    real = np.float64 if dtype is torch.float64 else np.float32
    scale = real(LEVELS / (LEVELS - threshold))
    arrays = [
        None if tensor is None else as_array(tensor.contiguous().view(-1))
        for tensor in (x, residual, out)
    ]
    blocks = -(-out.numel() // cpu_loops.BLOCK)
    share(cpu_loops.add_kept, blocks, BLOCKS, *arrays, seed, threshold, scale)
    return out
