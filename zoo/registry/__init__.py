"""What contributors add: its names, its options, and the words for what is wrong with either.

The one part of `zoo` that `tasks` uses too. Nothing here imports torch.
"""

from zoo.registry.messages import UserError, first_line, in_one_line, unknown
from zoo.registry.names import Registry, built, foreign
from zoo.registry.options import Value, options_of, require_at_least, resolve

__all__ = [
    "Registry",
    "UserError",
    "Value",
    "built",
    "first_line",
    "foreign",
    "in_one_line",
    "options_of",
    "require_at_least",
    "resolve",
    "unknown",
]
