"""What kernels for eager execution on a CPU share: when they can run, and second derivatives."""

import torch
from torch import Tensor


def on_cpu(x: Tensor) -> bool:
    """Whether `x` is on a CPU, and neither compiled nor under a function transform."""
    return x.device.type == "cpu" and not (torch.compiler.is_compiling() or transformed())


def transformed() -> bool:
    """Whether a transform of `torch.func` is active."""
    # Private: torch has no public function for whether vmap or grad is active.
    return torch._C._functorch.peek_interpreter_stack() is not None  # pyright: ignore


def differentiable(
    out: Tensor, inputs: tuple[Tensor, ...], d_out: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients that can be differentiated once more; None for inputs that need none."""
    needed = [x for x in inputs if x.requires_grad]
    gradients = iter(torch.autograd.grad(out, needed, d_out, create_graph=True))
    return tuple(next(gradients) if x.requires_grad else None for x in inputs)
