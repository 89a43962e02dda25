"""Stacks of layers by name.

`A` fills every layer, `A+B` all layers but the last, which is B. With a count or parentheses the
text gives the layers one by one, and repeats to the depth of the stack, which is a multiple of it:

    A*3+B       three layers of A, then one of B
    (A+B)*2     A, B, A, B
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zoo.contract import Attention, Size, Unsupported, variants
from zoo.registry import UserError, Value, changed, layers_in, require_memory, resolve

BYTES_PER_LAYER = 2**10  # What a layer takes, at least


@dataclass(frozen=True)
class Composition:
    """The variants of the layers of a stack, first to last."""

    pattern: tuple[str, ...]
    # Otherwise the last layer has the last variant, and every other layer the first.
    repeats: bool = False

    @classmethod
    def parse(cls, text: str) -> "Composition":
        if ":" in text:
            raise UserError(f"attention {text!r} is not a registered name; give its class an entry "
                            "point, as docs/add_a_variant.md says")  # fmt: skip
        repeats = any(sign in text for sign in "*()")
        pattern = layers_in(text) if repeats else tuple(text.split("+"))
        if not repeats and (len(pattern) > 2 or "" in pattern):
            count = sum(map(bool, pattern))
            raise UserError(f"attention {text!r} names {count} variants, not one or two; give A or "
                            "A+B, or a pattern of layers, as A*3+B")  # fmt: skip
        for name in dict.fromkeys(pattern):
            variants.find(name)
        if not repeats and len(pattern) == 2 and pattern[0] == pattern[1]:
            raise UserError(f"attention {text!r} names {pattern[0]} twice; give {pattern[0]!r}")
        return cls(pattern, repeats)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.pattern))

    def layers(self, depth: int) -> tuple[str, ...]:
        size = len(self.pattern)
        require_memory(BYTES_PER_LAYER * depth, f"a model with depth={depth}", "lower depth")
        if self.repeats:
            if depth % size:
                raise Unsupported(f"depth={depth} is no multiple of the {size} layers of the "
                                  f"pattern; give depth={-(-depth // size) * size}")  # fmt: skip
            return self.pattern * (depth // size)
        if depth < size:
            raise Unsupported(f"depth={depth} is less than the {size} variants of "
                              f"{'+'.join(self.names)}; raise depth")  # fmt: skip
        return (*[self.pattern[0]] * (depth - 1), self.pattern[-1])

    def resolve(self, options: Mapping[str, Mapping[str, Value]]) -> dict[str, dict[str, Value]]:
        return {
            name: resolve(name, variants.find(name), options.get(name, {})) for name in self.names
        }

    def changed(self, options: Mapping[str, Mapping[str, Value]]) -> dict[str, dict[str, Value]]:
        return {
            name: changed(variants.find(name), resolved)
            for name, resolved in self.resolve(options).items()
        }

    def overrides(
        self, options: Mapping[str, Mapping[str, Value]], usual: Mapping[str, Mapping[str, Value]]
    ) -> dict[str, Value]:
        ours, theirs = self.resolve(options), self.resolve(usual)
        return {
            f"{variant}.{name}": value
            for variant, resolved in ours.items()
            for name, value in resolved.items()
            if theirs[variant][name] != value
        }


def build(
    layers: Sequence[str], size: Size, options: Mapping[str, Mapping[str, Value]]
) -> list[Attention]:
    resolved = {
        name: resolve(name, variants.find(name), options.get(name, {})) for name in {*layers}
    }
    return [variants.find(name).build(size, resolved[name]) for name in layers]
