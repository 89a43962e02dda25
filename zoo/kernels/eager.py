"""Whether a kernel written for eager execution on a CPU can run."""

import torch
from torch import Tensor


def on_cpu(x: Tensor) -> bool:
    """Whether `x` is on a CPU, and neither compiled nor under a function transform."""
    return x.device.type == "cpu" and not (torch.compiler.is_compiling() or transformed())


def transformed() -> bool:
    """Whether a transform of `torch.func` is active."""
    # Private: torch has no public function for whether vmap or grad is active.
    return torch._C._functorch.peek_interpreter_stack() is not None  # pyright: ignore
