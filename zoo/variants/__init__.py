"""The variants that ship with the zoo, one mechanism a module, and the registry of all variants."""

from zoo.contract import variants

__all__ = ["variants"]
