"""The claim of a recurrence: one token at a time, from a state of fixed size."""

from collections.abc import Iterator

import torch
from torch import Tensor

from zoo.conformance.subject import (
    LENGTH,
    ROUNDING,
    Finding,
    Subject,
    at_most,
    attend,
    distance,
    draw,
)
from zoo.contract import Attention, State, Unsupported, state_bytes

SAMPLES = 3


def steps_are_the_forward(subject: Subject) -> Finding:
    """Token after token, for several samples at once, against the causal forward."""
    x, worst = draw(SAMPLES, LENGTH), 0.0
    for rotary in (False, True):
        layer = subject.layer(rotary=rotary).eval()
        tokens = torch.stack([found for found, _ in _steps(layer, x)], dim=1)
        worst = max(worst, distance(tokens, attend(layer, x)))
    return at_most(worst, ROUNDING, "with and without rotary positions differ by")


def the_state_is_fixed(subject: Subject) -> Finding:
    """It takes as many bytes before the first token as behind each later one, at any `max_len`."""
    layer, x = subject.layer().eval(), draw(SAMPLES, LENGTH)
    states = [layer.start(SAMPLES), *(state for _, state in _steps(layer, x))]
    sizes = [state_bytes(state) // SAMPLES for state in states]
    # A cache made beforehand grows with what it is made for.
    few, many = (state_bytes(subject.layer(max_len=most).start(1)) for most in (4096, 8192))
    return Finding(
        len(set(sizes)) == 1 and few == many,
        f"{sizes[0]} bytes a sample at first, {sizes[-1]} after {LENGTH} tokens; {few} where built "
        f"for 4096 tokens, {many} for 8192",
    )


def steps_are_pure(subject: Subject) -> Finding:
    """A step writes neither to the state nor to the layer, and its rows are each a sample's own."""
    layer, x = subject.layer().eval(), draw(SAMPLES, LENGTH)
    *_, (_, state) = _steps(layer, x[:, :-1])
    token, kept = x[:, -1], tuple(part.clone() for part in state)
    tokens, _ = layer.step(token, state)
    written = sum(not torch.equal(one, other) for one, other in zip(state, kept, strict=True))
    again, _ = layer.step(token, kept)
    turned, _ = layer.step(token.flip(0), tuple(part.flip(0) for part in kept))
    moved = max(distance(again, tokens), distance(turned.flip(0), tokens))
    return Finding(
        not written and moved <= ROUNDING,
        f"{written} of {len(state)} tensors written to; a step repeated, or of samples in another "
        f"order, differs by {moved:.2g}",
    )


def recurrence_is_refused(subject: Subject) -> Finding:
    """Neither a variant without the claim nor a form that is not causal gives a state."""
    try:
        subject.layer().start(SAMPLES)
    except Unsupported as refusal:
        return Finding(True, f"refused: {refusal}")
    return Finding(False, "gave a state without being recurrent and causal")


def _steps(layer: Attention, x: Tensor) -> Iterator[tuple[Tensor, State]]:
    """What each step gives, first token to last."""
    state = layer.start(len(x))
    for token in x.unbind(1):
        tokens, state = layer.step(token, state)
        yield tokens, state
