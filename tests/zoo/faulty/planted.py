"""Defects that are planted in a correct variant one by one, and the table of all."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tests.zoo.faulty.correct import Bidirectional, Recurrent
from zoo.contract import Attention

FAULTY: dict[type[Attention], str] = {}
"""The check that must detect each defect."""

Change = Callable[..., Any]


class Heads(NamedTuple):
    layer: Attention
    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    y: Any = None

    @property
    def n(self) -> int:
        return self.q.shape[2]

    @property
    def m(self) -> int:
        return self.k.shape[2]

    @property
    def real(self) -> Tensor:
        return self.v if self.mask is None else self.v.masked_fill(~self.mask[:, None, :, None], 0)

    @property
    def count(self) -> Any:
        return self.m if self.mask is None else self.mask.sum(1)[:, None, None, None].to(self.v)


class Sloped(torch.autograd.Function):
    """A copy, with the gradient `slope(gradient)`."""

    @staticmethod
    def forward(ctx, x, slope):
        ctx.slope = slope
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.slope(gradient), None


def fails(check: str) -> Callable[[type[Attention]], type[Attention]]:
    def add(variant: type[Attention]) -> type[Attention]:
        FAULTY[variant] = check
        return variant

    return add


def variant(check: str, name: str, base: type, **attributes: Any) -> type:
    return fails(check)(type(name, (base,), attributes))


def built(base: type, parts: Change) -> Change:
    """A constructor that sets the attributes `parts(layer, size)`, too."""

    def __init__(self, size):
        base.__init__(self, size)
        for name, part in parts(self, size).items():
            setattr(self, name, part)

    return __init__


def claiming(base: type, **attributes: Any) -> type:
    return type(f"Claiming{base.__name__}", (base,), attributes)


def planting(method: str, make: Callable[[type, Change], Change], usual: type) -> Callable:
    """A function that plants changes, by the names of the variants, for the check that fails."""

    def plant(check: str, base: type = usual, **changes: Change) -> None:
        for name, change in changes.items():
            variant(check, name, base, **{method: make(base, change)})

    return plant


inputs = planting("attend", lambda base, change: (
    lambda self, *heads: base.attend(self, *change(Heads(self, *heads))[1:5])
), Bidirectional)  # fmt: skip
"""Variants that attend with `change(heads)`."""

outputs = planting("attend", lambda base, change: (
    lambda self, *heads: change(Heads(self, *heads, base.attend(self, *heads)))
), Bidirectional)  # fmt: skip
"""Variants whose heads give `change(heads)`."""

arguments = planting("forward", lambda base, change: (
    lambda self, x, context, mask: base.forward(self, *change(self, x, context, mask))
), Bidirectional)  # fmt: skip
"""Variants that are called with `change(layer, x, context, mask)`, as the last three."""

writes = planting("forward", lambda base, change: (
    lambda self, *call: (base.forward(self, *call), change(self, *call))[0]
), Bidirectional)  # fmt: skip
"""Variants that call `change(layer, x, context, mask)` after attending."""

steps = planting("step", lambda base, change: (
    lambda self, x, state: change(self, x, state, *base.step(self, x, state))
), Recurrent)  # fmt: skip
"""Variants with `change(layer, x, state, tokens, next_state)` for the last two."""


def scaled(applies: Change, factor: float = 1.1) -> Change:
    return lambda h: h.y * factor if applies(h) else h.y


def padded(change: Change) -> Change:
    return lambda h: h.y if h.mask is None else change(h)


def coupled(applies: Change) -> Change:
    return lambda h: h.y + 0.01 * h.y.roll(1, 0) if applies(h) else h.y


def masked(applies: Change) -> Change:
    return lambda h: h if applies(h) else h._replace(mask=None)


def wrong(applies: Change, factor: float = 1.3) -> Change:
    """Heads in which the gradient of the keys is wrong where `applies(heads)`."""
    slope = lambda gradient: factor * gradient  # noqa: E731
    return lambda h: h._replace(k=Sloped.apply(h.k, slope)) if applies(h) else h
