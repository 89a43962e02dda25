"""Decoding, one token at a time; of a recurrence, from a state of constant size."""

from collections.abc import Iterator

import torch
from torch import Tensor

from zoo.conformance.configuration import ROUNDING, Configuration, Outcome, differ_by
from zoo.conformance.tensors import distance, output, random_tokens
from zoo.contract import Attention, State
from zoo.cost import state_bytes

SAMPLES = 3

STEPS = 300
"""More than the usual length, so that a state that grows late, or an error, is found."""


def check_steps(configuration: Configuration) -> Outcome:
    """The outputs of all steps equal the causal forward, with and without rotary positions."""
    x, distances = random_tokens(SAMPLES, STEPS), []
    for rotary, heads in ((False, 4), (True, 1)):
        layer = configuration.layer(rotary=rotary, heads=heads, max_len=STEPS).eval()
        tokens = torch.stack([tokens for tokens, _ in _steps(layer, x)], dim=1)
        distances.append(distance(tokens, output(layer, x)))
    return differ_by(distances)


def check_state_size(configuration: Configuration) -> Outcome:
    """The state has as many bytes before the first token as after each, for any `max_len`."""
    layer, x = configuration.layer().eval(), random_tokens(SAMPLES, STEPS)
    states = [layer.start(SAMPLES), *(state for _, state in _steps(layer, x))]
    sizes = [state_bytes(state) // SAMPLES for state in states]
    # A cache that is allocated in advance grows with `max_len`.
    short, long = (state_bytes(configuration.layer(max_len=n).start(1)) for n in (4096, 8192))
    return Outcome(
        len(set(sizes)) == 1 and short == long,
        f"{sizes[0]} bytes per sample at first, {sizes[-1]} after {STEPS} tokens; {short} with "
        f"max_len=4096, {long} with max_len=8192",
    )


def check_side_effects(configuration: Configuration) -> Outcome:
    """A step writes neither to the state nor to the layer; its samples are independent."""
    layer, x = configuration.layer().eval(), random_tokens(SAMPLES)
    *_, (_, state) = _steps(layer, x[:, :-1])
    token, copy = x[:, -1], tuple(part.clone() for part in state)
    tokens, _ = layer.step(token, state)
    written = sum(not torch.equal(*pair) for pair in zip(state, copy, strict=True))
    repeated, _ = layer.step(token, copy)
    flipped, _ = layer.step(token.flip(0), tuple(part.flip(0) for part in copy))
    change = max(distance(repeated, tokens), distance(flipped.flip(0), tokens))
    return Outcome(
        not written and change <= ROUNDING,
        f"{written} of {len(state)} tensors written to; a repeated step, or one with the samples "
        f"in another order, differs by {change:.2g}",
    )


def _steps(layer: Attention, x: Tensor) -> Iterator[tuple[Tensor, State]]:
    """The output and the state after each token, first to last."""
    state = layer.start(len(x))
    for token in x.unbind(1):
        tokens, state = layer.step(token, state)
        yield tokens, state
