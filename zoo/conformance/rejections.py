"""A call that a variant does not claim, and a mask that is not boolean, must raise an error."""

from collections.abc import Callable
from typing import Any

from zoo.conformance.configuration import Configuration, Outcome
from zoo.conformance.tensors import padding_masks, random_tokens
from zoo.contract import Unsupported
from zoo.registry import UserError


def rejection(
    otherwise: str, call: Callable[[Any], object] = lambda layer: layer,
    error: type[Exception] = Unsupported, **size: bool,
) -> Callable[[Configuration], Outcome]:  # fmt: skip
    # The check that building a layer of that size, or calling it, raises an error.
    def check(configuration: Configuration) -> Outcome:
        try:
            call(configuration.layer(**size))
        except error as raised:
            return Outcome(True, f"raises {type(raised).__name__}: {raised}")
        return Outcome(False, f"{otherwise} without an error")

    return check


check_causal = rejection("built a causal layer", causal=True)
check_form = rejection("built a bidirectional layer", causal=False)
check_context = rejection(
    "accepted another context",
    lambda layer: layer(random_tokens(2, 20), random_tokens(2, 20, seed=4), None),
)
check_recurrence = rejection("returned a state", lambda layer: layer.start(3))
# The convention of a mask that is not boolean is unknown.
check_mask = rejection(
    "accepted a mask of floats",
    lambda layer: layer(random_tokens(3, 20), None, padding_masks(20)[0].float()),
    UserError,
)
