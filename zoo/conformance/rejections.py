"""A call that a variant does not claim, and a mask that is not boolean, must raise an error."""

from collections.abc import Callable
from functools import partial

from zoo.conformance.configuration import Configuration, Outcome
from zoo.conformance.tensors import padding_masks, random_tokens
from zoo.contract import Unsupported
from zoo.registry import UserError


def check_causal(configuration: Configuration) -> Outcome:
    """Without a causal form, building one raises `Unsupported`."""
    return raises(Unsupported, lambda: configuration.layer(causal=True), "built a causal layer")


def check_form(configuration: Configuration) -> Outcome:
    """Without a bidirectional form, building one raises `Unsupported`."""
    layer = partial(configuration.layer, causal=False)
    return raises(Unsupported, layer, "built a bidirectional layer")


def check_context(configuration: Configuration) -> Outcome:
    """Without cross-attention, another context raises `Unsupported`."""
    layer, x, context = configuration.layer(), random_tokens(2, 20), random_tokens(2, 20, seed=4)
    return raises(Unsupported, lambda: layer(x, context, None), "accepted another context")


def check_recurrence(configuration: Configuration) -> Outcome:
    """`start` raises `Unsupported`, unless the variant decodes and the layer is causal."""
    return raises(Unsupported, lambda: configuration.layer().start(3), "returned a state")


def check_mask(configuration: Configuration) -> Outcome:
    """A mask that is not boolean raises `UserError`: its convention is unknown."""
    layer, x, mask = configuration.layer(), random_tokens(3, 20), padding_masks(20)[0]
    return raises(UserError, lambda: layer(x, x, mask.float()), "accepted a mask of floats")


def raises(error: type[Exception], call: Callable[[], object], otherwise: str) -> Outcome:
    try:
        call()
    except error as raised:
        return Outcome(True, f"raises {type(raised).__name__}: {raised}")
    return Outcome(False, f"{otherwise} without an error")
