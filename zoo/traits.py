"""The claims of a variant: its traits, and the variants that it equals at some settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Claims of a variant; `zoo.conformance` tests each.

    Attributes:
        causal: it has a form in which output i depends on tokens 0..i only.
        cross: it accepts a context other than its input.
        linear: time and memory grow linearly with the number of tokens.
        stochastic: its training output may differ from its evaluation output without dropout.
        recurrent: its causal form has `step(x_t, state) -> (y_t, state)`, equal to `forward` token
            by token, with a state of constant size. A cache of all keys and values does not count.
        losses: names of the loss terms that it returns while training.
        bidirectional: it has a form in which output i depends on all tokens. A variant without it
            is built with `causal=True` only, and has no cross-attention.
    """

    causal: bool
    cross: bool
    linear: bool
    stochastic: bool
    recurrent: bool
    losses: tuple[str, ...] = ()
    bidirectional: bool = True

    def __post_init__(self) -> None:
        for trait, value in vars(self).items():
            if rule := trait_error(trait, value):
                raise TypeError(f"Traits.{trait}={value!r}; give {rule}")
        if not self.bidirectional and (self.cross or not self.causal):
            raise TypeError("Traits.bidirectional=False needs causal=True, cross=False")

    @classmethod
    def causal_only(cls, *, linear: bool, stochastic: bool, recurrent: bool) -> "Traits":
        """The claims of a variant that has a causal form alone, and thus no cross-attention."""
        return cls(
            causal=True, cross=False, linear=linear, stochastic=stochastic, recurrent=recurrent,
            bidirectional=False,
        )  # fmt: skip

    @property
    def forms(self) -> tuple[bool, ...]:
        """The values of `Size.causal` that a layer can be built with, the bidirectional first."""
        return (False,) * self.bidirectional + (True,) * self.causal


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Settings at which a variant equals another one; `zoo.conformance` tests it.

    Outputs and gradients of the tokens are equal to 1e-12 in double precision, in each form that
    both variants have.

    Attributes:
        other: the registered name of the other variant.
        where: the settings, for messages: "window >= n".
        options: options of the variant; the others have their defaults.
        other_options: options of the other variant.
        prepare: sets parameters, called with a layer of the variant and one of the other, which
            already has the parameters of the first that agree in name and shape.
        exact: whether the outputs are equal to the bit.
    """

    other: str
    where: str
    options: Mapping[str, Any] = field(default_factory=dict)
    other_options: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[Any, Any], object] = lambda layer, other: None
    exact: bool = False


def trait_error(trait: str, value: object) -> str:
    if trait != "losses":
        return "" if isinstance(value, bool) else "True or False"
    valid = isinstance(value, tuple) and all(isinstance(name, str) for name in value)
    return "" if valid else "a tuple of names, as ('ksvd',)"
