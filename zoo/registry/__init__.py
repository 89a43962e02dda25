"""Registered objects: their names, their options, and messages about errors in either.

The one part of `zoo` that `tasks` uses too. Nothing here imports torch.
"""

from zoo.registry.messages import UserError, first_line, in_one_line, unknown
from zoo.registry.names import Registry, build, load_guarded
from zoo.registry.options import OMITTED_IF_DEFAULT, Value, options_of, require_at_least, resolve

__all__ = [
    "OMITTED_IF_DEFAULT",
    "Registry",
    "UserError",
    "Value",
    "build",
    "first_line",
    "in_one_line",
    "load_guarded",
    "options_of",
    "require_at_least",
    "resolve",
    "unknown",
]
