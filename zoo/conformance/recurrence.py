"""Decoding, one token at a time; of a recurrence, from a state of constant size."""

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from zoo.conformance.configuration import ROUNDING, Configuration, Outcome, differ_by
from zoo.conformance.tensors import SCATTERED, distance, output, random_tokens
from zoo.contract import Attention, State, Unsupported
from zoo.cost import state_bytes

SAMPLES = 3

STEPS = 300
"""More than the usual length, so that a state that grows late, or an error, is found."""

PARTS = (140,), (70, 71, 140)
"""Ends of the parts of a prompt of the usual length, of which the last tokens are steps."""


def check_steps(configuration: Configuration) -> Outcome:
    """The outputs of all steps equal the causal forward, with and without rotary positions."""
    x, distances = random_tokens(SAMPLES, STEPS), []
    for rotary, heads in ((False, 4), (True, 1)):
        layer = configuration.layer(rotary=rotary, heads=heads, max_len=STEPS).eval()
        tokens = torch.stack([tokens for tokens, _ in _steps(layer, x)], dim=1)
        distances.append(distance(tokens, output(layer, x)))
    return differ_by(distances)


def check_prefill(configuration: Configuration) -> Outcome:
    """`prefill`, then steps, give the outputs of steps: a prompt whole, in parts, and padded.

    Padding is NaN, before, between and after the tokens; each sample equals itself without it.
    """
    x, distances = random_tokens(SAMPLES), []
    for changes in ({}, {"rotary": True, "short_conv": 4}):
        layer = configuration.layer(max_len=STEPS, **changes).eval()
        expected = torch.stack([tokens for tokens, _ in _steps(layer, x)], dim=1)
        for ends in PARTS:
            distances.append(distance(_prefilled(layer, x, ends), expected))
        hidden = x.where(SCATTERED[..., None], torch.nan)
        try:
            padded, state = layer.prefill(hidden, SCATTERED)
        except Unsupported:
            continue  # a state that grows, and no own way to extend it
        following = _steps(layer, x, state)
        outputs = torch.cat([padded, *(tokens[:, None] for tokens, _ in following)], dim=1)
        for i, real in enumerate(SCATTERED):
            alone = torch.cat([x[i, real], x[i]])[None]
            found = outputs[i, torch.cat([real, torch.ones_like(real)])]
            # It equals the steps, as above.
            distances.append(distance(found, _prefilled(layer, alone, (len(alone[0]),))[0]))
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


def _prefilled(layer: Attention, x: Tensor, ends: tuple[int, ...]) -> Tensor:
    """The outputs of prompts that end at these tokens, and of a step at each token after."""
    outputs, state = [], None
    for start, end in pairwise((0, *ends)):
        tokens, state = layer.prefill(x[:, start:end], state=state)
        outputs.append(tokens)
    after = _steps(layer, x[:, ends[-1] :], state)
    return torch.cat([*outputs, *(tokens[:, None] for tokens, _ in after)], dim=1)


def _steps(
    layer: Attention, x: Tensor, state: State | None = None
) -> Iterator[tuple[Tensor, State]]:
    """The output and the state after each token, first to last, from `state` on."""
    state = layer.start(len(x)) if state is None else state
    for token in x.unbind(1):
        tokens, state = layer.step(token, state)
        yield tokens, state
