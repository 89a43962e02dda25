"""Attention variants behind one interface.

    layer = zoo.create("primal", dim=64, heads=2, max_len=4096, rank=30)
    tokens, losses = layer(x, mask=mask)

`docs/library.md` shows every name with examples. Names are imported on first use, so that
`zoo.registry` can be imported without torch.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoo import functional, packed, transformers
    from zoo.conformance import check
    from zoo.contract import Attended, Attention, Size, Traits, Unsupported
    from zoo.encoder import EncoderLayer, TokensOnly
    from zoo.library import create, names, uses
    from zoo.projected import ProjectedAttention
    from zoo.registry import UserError
    from zoo.replacement import replace

__all__ = [
    "Attended", "Attention", "EncoderLayer", "ProjectedAttention", "Size", "TokensOnly", "Traits",
    "Unsupported", "UserError", "check", "create", "functional", "names", "packed", "replace",
    "transformers", "uses",
]  # fmt: skip

# The module that defines a name, where it is not `zoo.contract`.
_MODULE_OF = {
    "EncoderLayer": "zoo.encoder", "ProjectedAttention": "zoo.projected",
    "TokensOnly": "zoo.encoder", "UserError": "zoo.registry", "check": "zoo.conformance",
    "create": "zoo.library", "names": "zoo.library", "replace": "zoo.replacement",
    "uses": "zoo.library",
}  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    if name in ("functional", "packed", "transformers"):
        return import_module(f"zoo.{name}")
    value = getattr(import_module(_MODULE_OF.get(name, "zoo.contract")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
