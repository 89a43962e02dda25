"""Decoding, one token at a time; of a recurrence, from a state of constant size."""

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from zoo.conformance.configuration import ROUNDING, Configuration, Outcome, Setting, differ_by
from zoo.conformance.side_effects import differences, listed, shared_state, state_of
from zoo.conformance.tensors import (
    LENGTH,
    LONG,
    SCATTERED,
    distance,
    output,
    random_tokens,
    relative_error,
)
from zoo.contract import Attention, State, Unsupported
from zoo.cost import state_bytes

SAMPLES = 3

# More than the usual length, so that a state that grows late, or an error, is found.
STEPS, FEW_STEPS = LONG, 600

# Ends of the parts of a prompt. The tokens after the last end are steps.
PARTS = (140,), (70, 71, 140)

EXACT_SETTINGS = (
    (STEPS, Setting(heads=8, rotary=True, max_len=STEPS)),
    (LENGTH, Setting(training=True, heads=1, rotary=True, dropout=0.2, max_len=LENGTH)),
    (LENGTH, Setting(heads=3, dim=15, short_conv=4, dropout=0.2, max_len=LENGTH)),
)
# Steps in double precision, and in others; dropout has no effect on a step, in either mode.
LOW_SETTINGS = (
    (FEW_STEPS, Setting(dtype=torch.bfloat16, max_len=FEW_STEPS)),
    (FEW_STEPS, Setting(dtype=torch.float32, autocast=torch.bfloat16, max_len=FEW_STEPS)),
)

PREFILL_SETTINGS = (
    Setting(dropout=0.2, max_len=STEPS),
    Setting(training=True, rotary=True, short_conv=4, dropout=0.2, max_len=STEPS),
)

DECODING = Setting(rotary=True, short_conv=4, max_len=100)  # Steps may be more than `max_len`

SELECTIONS = [0, 1, 2], [2, 0], [1, 1, 2, 0, 1]

# The largest relative error of the steps in bf16; a recurrence that sums in bf16 has more.
LOW_ERROR = 0.05


def check_steps(configuration: Configuration) -> Outcome:
    """The outputs of all steps equal the causal forward, in evaluation."""
    # In bf16 the relative error of the last ones is bounded: the state must not lose what is added.
    exact, low = (
        [error(configuration, n, configuration.accepted(setting)) for n, setting in settings]
        for error, settings in ((_difference, EXACT_SETTINGS), (_low_error, LOW_SETTINGS))
    )
    outcome = differ_by(exact)
    detail = f"{outcome.detail}; relative error in bf16 {low[0]:.1g}, under autocast {low[1]:.1g}"
    return Outcome(outcome.passed and max(low) <= LOW_ERROR, f"{detail}, at most {LOW_ERROR}")


def _difference(configuration: Configuration, steps: int, setting: Setting) -> float:
    layer, x = configuration.layer_for(setting), setting.tokens(SAMPLES, steps)
    tokens = torch.stack([tokens for tokens, _ in _steps(layer, x)], dim=1)
    return distance(tokens, output(layer.eval(), x))


def _low_error(configuration: Configuration, steps: int, setting: Setting) -> float:
    x = setting.tokens(1, steps)
    exact = output(configuration.layer_for(setting._replace(dtype=torch.float64)).eval(), x)
    layer, x = configuration.layer_for(setting), x.to(setting.dtype)
    with torch.no_grad(), setting.autocast_region():
        tokens = [tokens for tokens, _ in _steps(layer, x)]
    last = slice(steps * 2 // 3, None)
    return relative_error(torch.stack(tokens, dim=1)[:, last].double(), exact[:, last])


def check_prefill(configuration: Configuration) -> Outcome:
    """`prefill`, then steps, give the outputs of steps: a prompt whole, in parts, and padded."""
    # Behind a prompt of more than 1,000 tokens they give the outputs of the causal forward.
    x, distances = random_tokens(SAMPLES), []
    for setting in map(configuration.accepted, PREFILL_SETTINGS):
        layer = configuration.layer_for(setting)
        expected = torch.stack([tokens for tokens, _ in _steps(layer, x)], dim=1)
        for ends in PARTS:
            distances.append(distance(prefilled(layer, x, ends), expected))
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
            distances.append(distance(found, prefilled(layer, alone, (len(alone[0]),))[0]))
    layer, x = configuration.layer(max_len=LONG).eval(), random_tokens(1, LONG)
    distances.append(distance(prefilled(layer, x, (LONG - 20,)), output(layer, x)))
    return differ_by(distances)


def check_state_size(configuration: Configuration) -> Outcome:
    """The state has as many bytes before the first token as after each, for any `max_len`."""
    layer, x = configuration.layer().eval(), random_tokens(SAMPLES, STEPS)
    states = [layer.start(SAMPLES), *(state for _, state in _steps(layer, x))]
    sizes = [state_bytes(state) // SAMPLES for state in states]
    # A cache that is allocated in advance grows with `max_len`.
    short, long = (state_bytes(configuration.layer(max_len=n).start(1)) for n in (4096, 8192))
    detail = f"{sizes[0]} bytes per sample at first, {sizes[-1]} after {STEPS} tokens; {short} with"
    passed = len(set(sizes)) == 1 and short == long
    return Outcome(passed, f"{detail} max_len=4096, {long} with max_len=8192")


def check_side_effects(configuration: Configuration) -> Outcome:
    """A step writes neither to the token, the state, the layer nor its module."""
    # Samples of a state can be left out, exchanged and repeated; in a recurrence also joined with
    # samples after another number of tokens. Its dtypes do not change.
    layer = configuration.layer_for(configuration.accepted(DECODING))
    x = DECODING.tokens(SAMPLES)
    steps = list(_steps(layer, x))
    states = [layer.start(SAMPLES), *(state for _, state in steps)]
    inputs, expected = (x[:, -1], *states[-2]), steps[-1][0]
    copies, written, change = [part.clone() for part in inputs], 0, 0.0
    before = dict(state_of(layer)) | dict(shared_state(layer))
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            layer.step(inputs[0], inputs[1:])
            for samples in SELECTIONS:
                token, *state = (part[samples] for part in copies)
                tokens, _ = layer.step(token, tuple(state))
                change = max(change, distance(tokens, expected[samples]))
        written += sum(not torch.equal(*pair) for pair in zip(inputs, copies, strict=True))
    kept = differences(before, dict(state_of(layer)) | dict(shared_state(layer)))
    if configuration.traits.recurrent:
        ages = enumerate((0, LENGTH // 2, LENGTH - 1))
        rows = [(x[i, age], steps[age][0][i], *(p[i] for p in states[age])) for i, age in ages]
        token, expected, *state = (torch.stack(parts) for parts in zip(*rows, strict=True))
        change = max(change, distance(layer.step(token, tuple(state))[0], expected))
    (_, state), before = next(_steps(layer.bfloat16(), x.bfloat16())), layer.start(1)
    cast = sum(a.dtype != b.dtype for a, b in zip(before, state, strict=True))
    return Outcome(
        not (written or cast or kept) and change <= ROUNDING,
        f"{written} tensors written to, changed: {listed(kept)}, {cast} of another dtype "
        f"after a step in bf16; a step with other, repeated or joined samples differs by "
        f"{change:.2g}",
    )


def prefilled(layer: Attention, x: Tensor, ends: tuple[int, ...]) -> Tensor:
    outputs, state = [], None
    for start, end in pairwise((0, *ends)):
        tokens, state = layer.prefill(x[:, start:end], state=state)
        outputs.append(tokens)
    after = _steps(layer, x[:, ends[-1] :], state)
    return torch.cat([*outputs, *(tokens[:, None] for tokens, _ in after)], dim=1)


def _steps(
    layer: Attention, x: Tensor, state: State | None = None
) -> Iterator[tuple[Tensor, State]]:
    state = layer.start(len(x)) if state is None else state
    for token in x.unbind(1):
        tokens, state = layer.step(token, state)
        yield tokens, state
