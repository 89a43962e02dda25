"""Registered objects: their names, their options, and messages about errors in either.

The one part of `zoo` that `tasks` uses too. Nothing here imports torch.
"""

from zoo.registry.calls import checked
from zoo.registry.families import CUSTOM, FAMILIES
from zoo.registry.memory import allocating, require_memory, uncollected
from zoo.registry.messages import UserError, first_line, in_one_line, printable, unknown
from zoo.registry.names import Registry, build, entry_points, load_guarded
from zoo.registry.options import Value, changed, options_of, require_at_least, resolve
from zoo.registry.pattern import layers_in

__all__ = [
    "CUSTOM", "FAMILIES", "Registry", "UserError", "Value", "allocating", "build", "changed",
    "checked", "entry_points", "first_line", "in_one_line", "layers_in", "load_guarded",
    "options_of", "printable", "require_at_least", "require_memory", "resolve", "uncollected",
    "unknown",
]  # fmt: skip
