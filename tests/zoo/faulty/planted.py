"""Defects that are planted in a correct variant one by one, and the table of all."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from tests.zoo.faulty.correct import Bidirectional
from zoo.contract import Attended, Attention

FAULTY: dict[type[Attention], str] = {}
"""The check that must detect each defect."""

Change = Callable[..., Any]


class Heads(NamedTuple):
    """The inputs of the heads of a layer, and their outputs."""

    layer: Attention
    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    y: Any = None

    @property
    def real(self) -> Tensor:
        """Values, with zeros for padding."""
        return self.v if self.mask is None else self.v.masked_fill(~self.mask[:, None, :, None], 0)

    @property
    def count(self) -> Any:
        """The number of real tokens of each sample."""
        if self.mask is None:
            return self.v.shape[2]
        return self.mask.sum(1)[:, None, None, None].to(self.v.dtype)


def fails(check: str) -> Callable[[type[Attention]], type[Attention]]:
    def add(variant: type[Attention]) -> type[Attention]:
        FAULTY[variant] = check
        return variant

    return add


def claiming(base: type, **attributes: Any) -> type:
    return type(f"Claiming{base.__name__}", (base,), attributes)


def inputs(name: str, check: str, base: type, change: Change) -> None:
    """A variant that attends with `change(heads)`."""

    def attend(self, *heads):
        return base.attend(self, *change(Heads(self, *heads))[1:5])

    fails(check)(type(name, (base,), {"attend": attend}))


def outputs(name: str, check: str, base: type, change: Change) -> None:
    """A variant whose heads give `change(heads)`."""

    def attend(self, *heads):
        return change(Heads(self, *heads, base.attend(self, *heads)))

    fails(check)(type(name, (base,), {"attend": attend}))


def arguments(name: str, check: str, base: type, change: Change) -> None:
    """A variant that is called with `change(layer, x, context, mask)`, as the last three."""

    def forward(self, x, context, mask):
        return base.forward(self, *change(self, x, context, mask))

    fails(check)(type(name, (base,), {"forward": forward}))


def convolves(name: str, check: str, base: type, convolution: type) -> None:
    """A variant whose keys and values are convolved by `convolution(size, width)`."""

    def __init__(self, size):
        base.__init__(self, size)
        self.context_conv = convolution(size, 2 * size.dim)

    fails(check)(type(name, (base,), {"__init__": __init__}))


def writes(name: str, base: type, change: Change) -> None:
    """A variant that calls `change(x, context, mask)` after attending."""

    def forward(self, x, context, mask):
        attended = base.forward(self, x, context, mask)
        change(x, context, mask)
        return attended

    fails("side-effect-free forward")(type(name, (base,), {"forward": forward}))


def tokens_where(name: str, applies: Change, change: Change) -> type:
    """A variant with `change(tokens)` for tokens, where `applies(layer, x, context, mask)`."""

    def forward(self, x, context, mask):
        tokens, losses = Bidirectional.forward(self, x, context, mask)
        return Attended(change(tokens) if applies(self, x, context, mask) else tokens, losses)

    return type(name, (Bidirectional,), {"forward": forward})
