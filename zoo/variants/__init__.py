"""The variants of this package, one mechanism per module, and the registry of all variants."""

from zoo.contract import variants

__all__ = ["variants"]
