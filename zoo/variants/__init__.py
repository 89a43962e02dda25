"""The variants that ship with the zoo, one mechanism a module, and the registry of all variants."""

from zoo.contract import Attention
from zoo.registry import Registry

variants: Registry[type[Attention]] = Registry(
    "attention variant", "zoo.variants", group="zoo.variants", base=Attention
)
