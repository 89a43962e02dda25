"""The inputs of the attention layers of a model, on examples of a split."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from tasks.contract import Split
from zoo.contract import Attention


class Inputs(NamedTuple):
    """The tokens of a call, (b, n, d), and their mask."""

    x: Tensor
    mask: Tensor | None


def evenly_spaced(split: Split, count: int) -> Int[Tensor, " n"]:
    """The indices of at most `count` examples of a split, ascending, the first and last included.

    Of one example it is the first.
    """
    return torch.linspace(0, len(split) - 1, min(count, len(split))).long().unique()


def attentions(model: nn.Module) -> list[Attention]:
    """The attention layers of a model, first to last."""
    found = {name: part for name, part in model.named_modules() if isinstance(part, Attention)}
    # Not the parts of an attention layer that are of the same type.
    inner = tuple(f"{name}." for name in found)
    return [part for name, part in found.items() if not name.startswith(inner)]


@contextmanager
def recorded(model: nn.Module) -> Iterator[list[Inputs]]:
    """The inputs of each attention layer, in the order of the calls while the context is open."""
    calls: list[Inputs] = []

    def note(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        x, _, mask = arguments
        calls.append(Inputs(x, mask))

    hooks = [layer.register_forward_pre_hook(note) for layer in attentions(model)]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()
