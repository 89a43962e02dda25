"""Stacks of layers by name: `A`, or `A+B` for layers of A and a last layer of B."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zoo.contract import Attention, Size, Unsupported, variants
from zoo.registry import UserError, Value, changed, resolve


@dataclass(frozen=True)
class Composition:
    """The variants of the layers of a stack: that of the last one, and that of all others."""

    body: str
    last: str

    @classmethod
    def parse(cls, text: str) -> "Composition":
        """Read `A` or `A+B`.

        Raises:
            UserError: a name is unknown, or there are more than two, or the same one twice.
        """
        if ":" in text:
            raise UserError(
                f"attention {text!r} is not a registered name; give its class an entry point, as "
                "docs/add_a_variant.md says"
            )
        names = text.split("+")
        if len(names) > 2 or "" in names:
            count = sum(map(bool, names))
            raise UserError(
                f"attention {text!r} names {count} variants, not one or two; give A or A+B"
            )
        for name in names:
            variants.find(name)
        body, last = names[0], names[-1]
        if len(names) == 2 and body == last:
            raise UserError(f"attention {text!r} names {body} twice; give {body!r}")
        return cls(body, last)

    @property
    def names(self) -> tuple[str, ...]:
        """The variants of the stack, each once."""
        return (self.body,) if self.body == self.last else (self.body, self.last)

    def layers(self, depth: int) -> tuple[str, ...]:
        """The variant of each layer of a stack, first to last.

        Raises:
            Unsupported: `depth` is less than the number of variants.
        """
        if depth < len(self.names):
            raise Unsupported(
                f"depth={depth} is less than the {len(self.names)} variants of "
                f"{'+'.join(self.names)}; raise depth"
            )
        return (*[self.body] * (depth - 1), self.last)

    def resolve(self, given: Mapping[str, Mapping[str, Value]]) -> dict[str, dict[str, Value]]:
        """All options of all variants of the stack: `given`, checked and completed."""
        return {
            name: resolve(name, variants.find(name), given.get(name, {})) for name in self.names
        }

    def changed(self, given: Mapping[str, Mapping[str, Value]]) -> dict[str, dict[str, Value]]:
        """The options of all variants of the stack that differ from their defaults, checked."""
        return {
            name: changed(variants.find(name), own) for name, own in self.resolve(given).items()
        }

    def overrides(
        self, given: Mapping[str, Mapping[str, Value]], usual: Mapping[str, Mapping[str, Value]]
    ) -> dict[str, Value]:
        """The options of `given` that differ from those of `usual`, by `VARIANT.OPTION`."""
        ours, theirs = self.resolve(given), self.resolve(usual)
        return {
            f"{variant}.{name}": value
            for variant, own in ours.items()
            for name, value in own.items()
            if theirs[variant][name] != value
        }


def build(
    layers: Sequence[str], size: Size, options: Mapping[str, Mapping[str, Value]]
) -> list[Attention]:
    """The attention layers of a stack, of the variants named, first to last.

    Raises:
        UserError: an option is unknown, of the wrong type or out of range, or `size` is not
            supported.
    """
    resolved = {
        name: resolve(name, variants.find(name), options.get(name, {})) for name in {*layers}
    }
    return [variants.find(name).build(size, resolved[name]) for name in layers]
