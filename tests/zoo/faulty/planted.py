"""What plants one defect in a correct variant, and the table of all defects."""

from collections.abc import Callable
from typing import Any

from tests.zoo.faulty.correct import Bidirectional
from zoo.contract import Attended, Attention

FAULTY: dict[type[Attention], str] = {}
"""The check that must detect each defect."""

Decorator = Callable[[Callable[..., Any]], type[Attention]]


def fails(check: str) -> Callable[[type[Attention]], type[Attention]]:
    """Decorate a faulty variant with the check that must detect it."""

    def add(variant: type[Attention]) -> type[Attention]:
        FAULTY[variant] = check
        return variant

    return add


def inputs(check: str, base: type = Bidirectional, **attributes: Any) -> Decorator:
    """The function gives other q, k, v and mask of the heads, from (layer, q, k, v, mask)."""

    def plant(change: Callable[..., Any]) -> type[Attention]:
        def attend(self, *heads):
            return base.attend(self, *change(self, *heads))

        return fails(check)(type(change.__name__, (base,), {"attend": attend, **attributes}))

    return plant


def outputs(check: str, base: type = Bidirectional, **attributes: Any) -> Decorator:
    """The function gives other outputs of the heads, from (layer, outputs, q, k, v, mask)."""

    def plant(change: Callable[..., Any]) -> type[Attention]:
        def attend(self, *heads):
            return change(self, base.attend(self, *heads), *heads)

        return fails(check)(type(change.__name__, (base,), {"attend": attend, **attributes}))

    return plant


def arguments(check: str, base: type = Bidirectional) -> Decorator:
    """The function gives another x, context and mask, from (layer, x, context, mask)."""

    def plant(change: Callable[..., Any]) -> type[Attention]:
        def forward(self, x, context, mask):
            return base.forward(self, *change(self, x, context, mask))

        return fails(check)(type(change.__name__, (base,), {"forward": forward}))

    return plant


def tokens_where(name: str, applies: Callable[..., Any], change: Callable[..., Any]) -> type:
    """A variant with `change(tokens)` for tokens, where `applies(layer, x, context, mask)`."""

    def forward(self, x, context, mask):
        tokens, losses = Bidirectional.forward(self, x, context, mask)
        return Attended(change(tokens) if applies(self, x, context, mask) else tokens, losses)

    return type(name, (Bidirectional,), {"forward": forward})
