"""What the attention layers of a model are called on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor, nn

from harness.model import Classifier
from zoo.contract import Attention


class Inputs(NamedTuple):
    """The tokens of a call, (b, n, d), and their mask."""

    x: Tensor
    mask: Tensor | None


def attentions(model: Classifier) -> list[Attention]:
    """The attention layers of a model, first to last."""
    layers: Any = model.layers
    return [layer.attention for layer in layers]


@contextmanager
def recorded(model: Classifier) -> Iterator[list[Inputs]]:
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
