"""Conditions for kernels of eager execution on a CPU, and gradients that have no derivative."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from zoo.registry import UserError

_PLAIN = ContextVar("plain", default=False)


@contextmanager
def plain_operations() -> Iterator[None]:
    """Compute layers by operations of PyTorch alone, whose gradients can be differentiated again.

    There is no compiled loop, and no kernel with a gradient written by hand.
    """
    token = _PLAIN.set(True)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        _PLAIN.reset(token)


def on_cpu(x: Tensor) -> bool:
    # Kernels for a CPU run in no compiler, which cannot trace the variable, nor in a function
    # transform or `plain_operations`.
    return x.device.type == "cpu" and not (
        torch.compiler.is_compiling() or _PLAIN.get() or transformed()
    )


class _Untransformed(torch.autograd.Function):
    # The transforms of `torch.func` reject a function without `setup_context`.

    @staticmethod
    def forward(ctx: Any) -> None:
        pass


def transformed() -> bool:
    # No function of PyTorch says so.
    # A compiler cannot trace the attempt.
    if not torch.compiler.is_compiling():
        try:
            _Untransformed.apply()
        except RuntimeError:
            return True
    return False


def differentiable_once(
    name: str, remedy: str = "compute it inside of zoo.kernels.eager.plain_operations()"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    # A decorator of `backward`: to differentiate its gradients raises `UserError`. The error of
    # `torch.autograd.function.once_differentiable` is on no path to an input, so that
    # `torch.autograd.grad` takes the gradients for constants. Here `ctx` has saved the inputs;
    # `backward` gets them as its second argument: they may be read once.
    def decorate(backward: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(backward)
        def once(ctx: Any, *gradients: Tensor | None) -> Any:
            saved = ctx.saved_tensors
            if not torch.is_grad_enabled() or transformed():
                return backward(ctx, saved, *gradients)
            with torch.no_grad():
                results = backward(ctx, saved, *gradients)
            message = f"gradients of {name} can be differentiated once; {remedy}"
            found = [x for x in results if x is not None]
            last = iter(_Last.apply(message, len(found), *found, *gradients, *saved))
            return tuple(x if x is None else next(last) for x in results)

        return once

    return decorate


class _Last(torch.autograd.Function):
    # Gradients, and what they depend on: their derivative is an error.

    @staticmethod
    def forward(ctx: Any, message: str, count: int, *tensors: Tensor | None) -> Any:
        ctx.message = message
        return tuple(x if x is None else x.view_as(x) for x in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise UserError(ctx.message)
