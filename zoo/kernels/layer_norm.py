"""Layer norm from fp32 to bf16 in one pass over the tensor, for autocast on a CPU.

Ba, Kiros, Hinton, "Layer Normalization", 2016, arXiv 1607.06450:

    y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias

Under autocast PyTorch computes y in fp32, and each matrix product rounds it to bf16 by itself; in
the backward pass gradients are converted back. Here x, its statistics and all sums are fp32, and
only y is rounded, once. The gradient for x is fp32.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from zoo.kernels import eager
from zoo.kernels.threads import as_array, share

Vectors = Float[Tensor, "*b d"]

BLOCKS = 16
"""Blocks of `cpu_loops.ROWS` rows that are worth another thread."""


class LayerNorm(nn.LayerNorm):
    """`nn.LayerNorm` over one axis, with an output in bf16 under bf16 autocast on a CPU."""

    def forward(self, input: Vectors) -> Vectors:
        """Return the norm of each vector."""
        if not _can_run(input) or self.weight.dtype is not torch.float32:
            return super().forward(input)
        return _LayerNorm.apply(input, self.weight, self.bias, self.eps)


def _can_run(x: Tensor) -> bool:
    # A subclass of Tensor may have no memory.
    plain = type(x) is Tensor and x.dtype is torch.float32 and eager.on_cpu(x)
    bf16 = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.bfloat16
    return plain and bf16


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        # Compilers take a while to import.
        from zoo.kernels import cpu_loops

        x = x.contiguous()
        rows = x.view(-1, x.shape[-1])
        out = torch.empty_like(rows, dtype=torch.bfloat16)
        statistics = rows.new_empty(len(rows), 2)
        arrays = [as_array(tensor) for tensor in (rows, weight, bias)]
        results = [as_array(tensor) for tensor in (out, statistics)]
        blocks = -(-len(rows) // cpu_loops.ROWS)
        share(cpu_loops.normalise, blocks, BLOCKS, *arrays, np.float32(eps), *results)
        ctx.save_for_backward(x, weight, statistics)
        return out.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        from zoo.kernels import cpu_loops

        x, weight, statistics = ctx.saved_tensors
        rows = x.view(-1, x.shape[-1])
        blocks = -(-len(rows) // cpu_loops.ROWS)
        out, sums = torch.empty_like(rows), rows.new_zeros(blocks, 2, rows.shape[1])
        inputs = (rows, weight, statistics, gradient.contiguous().view(rows.shape))
        arrays = [as_array(tensor) for tensor in (*inputs, out, sums)]
        share(cpu_loops.normalise_gradient, blocks, BLOCKS, *arrays)
        d_weight, d_bias = sums.sum(0)
        return out.view(x.shape), d_weight, d_bias, None
