"""Registered objects: their names, their options, and messages about errors in either.

The one part of `zoo` that `tasks` uses too. Nothing here imports torch.
"""

from collections.abc import Mapping

from zoo.registry.calls import checked
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

CUSTOM = "custom"  # The family of a variant that declares none

# Colours on white by family, told apart with any colour vision: exact softmax; Primal-Attention;
# features of a kernel; recurrences whose state decays; recurrences that correct their state; few
# landmarks or projections; windows, buckets and hashes; convolutions and nothing; plug-ins.
FAMILIES: Mapping[str, str] = {
    "softmax": "#0173b2",
    "primal": "#d55e00",
    "kernel": "#029e73",
    "decay": "#8446a3",
    "delta rule": "#e377c2",
    "low rank": "#de8f05",
    "sparse": "#56b4e9",
    "no attention": "#8c6d4f",
    CUSTOM: "#202020",
}
