"""Inputs of the checks, and quantities computed from outputs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from zoo.contract import Attended, Attention

DIM = 16
LENGTH = 150  # Tokens of the usual input: longer than every default block, and a multiple of none

# Tokens of a long input: beyond 1,024, at which an implementation may change its method.
LONG = 1100

# Beyond 2,048, and a multiple of 256, so of the blocks that an implementation may have.
LONGER = 2304


def poison(n: int) -> Tensor:
    return torch.tensor(POISON, dtype=torch.float64)[torch.arange(n) % len(POISON), None]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def random_tokens(samples: int, n: int = LENGTH, *, seed: int = 2, dim: int = DIM) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(samples, n, dim, dtype=torch.float64, generator=generator)


def padding_masks(length: int = LENGTH) -> tuple[Tensor, Tensor]:
    # (3, length): padding after the real tokens; padding before, between and after.
    position = torch.arange(length)
    after = position < torch.tensor([length, length * 2 // 3, 7])[:, None]
    between = (position < length // 5) | (position > length * 3 // 5)
    before = (position > 3) & (position < length - 10)
    return after, torch.stack([between, position % 3 > 0, before])


SCATTERED = padding_masks()[1]  # A mask with padding before, between and after the real tokens

# What padded tokens may hold, one after the other.
POISON = float("nan"), float("inf"), -float("inf")


def attended(
    layer: Callable[..., Attended], x: Tensor, mask: Tensor | None = None, context: Any = None
) -> Attended:
    # Broadcasting would hide another shape.
    result = layer(x, context, mask)
    if (got := tuple(result.tokens.shape)) != tuple(x.shape):
        raise ValueError(f"an output of shape {got} for tokens of shape {tuple(x.shape)}")
    return result


def function_of(layer: Attention) -> Callable[..., Attended]:
    # It gets the tokens that a call replaces because they are padded.
    return lambda x, context, mask: layer.forward(x, x if context is None else context, mask)


def output(layer: Attention, x: Tensor, mask: Tensor | None = None) -> Tensor:
    return attended(layer, x, mask).tokens


def probe_loss(result: Attended, real: Tensor | None = None) -> Tensor:
    # The sum of all coordinates of real tokens, each with another weight, and of the losses.
    tokens = result.tokens if real is None else result.tokens[real]
    weights = torch.linspace(-1, 1.3, tokens.numel(), dtype=tokens.dtype).reshape(tokens.shape)
    return (tokens * weights).sum() + sum(result.losses.values())


def with_gradients(
    layer: Attention, x: Tensor, result: Attended, real: Tensor | None = None
) -> list[Tensor]:
    inputs, loss = [x, *layer.parameters()], probe_loss(result, real)
    gradients = torch.autograd.grad(loss, inputs, materialize_grads=True)
    return [result.tokens, *result.losses.values(), *gradients]


def distance(actual: Tensor, expected: Tensor) -> float:
    # A maximum would drop NaN.
    finite = actual.isfinite().all() and expected.isfinite().all()
    if actual.shape != expected.shape or not finite:
        return float("inf")
    if actual.numel() == 0:
        return 0.0
    return ((actual - expected).abs().max() / expected.abs().max().clamp_min(1.0)).item()


def relative_error(actual: Tensor, expected: Tensor) -> float:
    # Unlike a largest entry, it also measures an error in the scale of all entries.
    if actual.shape != expected.shape or not actual.isfinite().all():
        return float("inf")
    difference = torch.linalg.vector_norm(actual - expected)
    return (difference / torch.linalg.vector_norm(expected).clamp_min(1e-9)).item()
