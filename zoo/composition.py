"""Stacks of layers by name: `A`, or `A+B` for layers of A under a last layer of B."""

from collections.abc import Mapping
from dataclasses import dataclass

from zoo.contract import Attention, Size
from zoo.registry import UserError, Value, resolve
from zoo.variants import variants


@dataclass(frozen=True)
class Composition:
    """Which variant each layer of a stack is.

    Attributes:
        body: the variant of every layer but the last.
        last: the variant of the last layer.
    """

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
                f"attention {text!r} is no registered name; give its class an entry point, as "
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
        if len(set(names)) < len(names):
            raise UserError(f"attention {text!r} names {names[0]} twice; give {names[0]!r}")
        return cls(names[0], names[-1])

    @property
    def names(self) -> tuple[str, ...]:
        """The variants that take part, each once."""
        return (self.body,) if self.body == self.last else (self.body, self.last)

    def resolve(self, given: Mapping[str, Mapping[str, Value]]) -> dict[str, dict[str, Value]]:
        """Every option of every variant that takes part: `given`, completed by the defaults.

        Raises:
            UserError: an option is unknown or ill-typed.
        """
        return {
            name: resolve(name, variants.find(name), given.get(name, {})) for name in self.names
        }

    def build(
        self, size: Size, depth: int, options: Mapping[str, Mapping[str, Value]]
    ) -> list[Attention]:
        """One layer of attention for each of `depth`, first to last.

        Raises:
            UserError: an option is unknown, ill-typed or out of range, or `size` is not supported, or
                `depth` has no room for two variants.
        """
        if depth < len(self.names):
            raise UserError(f"depth={depth} has no room for {'+'.join(self.names)}; raise depth")
        resolved = self.resolve(options)
        order = [self.body] * (depth - 1) + [self.last]
        return [variants.find(name)(size, **resolved[name]) for name in order]
