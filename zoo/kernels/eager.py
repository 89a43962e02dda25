"""Conditions for kernels of eager execution on a CPU, and their second derivatives."""

from typing import Any

import torch
from torch import Tensor


def on_cpu(x: Tensor) -> bool:
    """Return whether `x` is on a CPU, and neither compiled nor under a function transform."""
    return x.device.type == "cpu" and not (torch.compiler.is_compiling() or transformed())


class _Untransformed(torch.autograd.Function):
    """A function that the transforms of `torch.func` reject, since it has no `setup_context`."""

    @staticmethod
    def forward(ctx: Any) -> None:
        pass


def transformed() -> bool:
    """Return whether a transform of `torch.func` is active, which no function of PyTorch says."""
    # A compiler cannot trace the attempt.
    if not torch.compiler.is_compiling():
        try:
            _Untransformed.apply()
        except RuntimeError:
            return True
    return False


def differentiable(
    out: Tensor, inputs: tuple[Tensor, ...], d_out: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients that can be differentiated once more; None for inputs that need none."""
    needed = [x for x in inputs if x.requires_grad]
    gradients = iter(torch.autograd.grad(out, needed, d_out, create_graph=True))
    return tuple(next(gradients) if x.requires_grad else None for x in inputs)
