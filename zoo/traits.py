"""The claims of a variant."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Claims of a variant, each of which `zoo.conformance` tests.

    Attributes:
        causal: it has a form in which output i depends on tokens 0..i only.
        cross: it accepts a context other than its input.
        linear: time and memory grow linearly with the number of tokens.
        stochastic: its training output may differ from its evaluation output without dropout.
        recurrent: its causal form has `step(x_t, state) -> (y_t, state)`, equal to `forward` token
            by token, with a state of constant size. A cache of all keys and values does not count.
        losses: names of the loss terms that it returns while training.
    """

    causal: bool
    cross: bool
    linear: bool
    stochastic: bool
    recurrent: bool
    losses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise `TypeError` if a value is of another type."""
        for trait, value in vars(self).items():
            if rule := trait_error(trait, value):
                raise TypeError(f"Traits.{trait}={value!r}; give {rule}")


def trait_error(trait: str, value: object) -> str:
    """The values that the trait may have, for a message, if `value` is not one; else empty."""
    if trait != "losses":
        return "" if isinstance(value, bool) else "True or False"
    valid = isinstance(value, tuple) and all(isinstance(name, str) for name in value)
    return "" if valid else "a tuple of names, as ('ksvd',)"
