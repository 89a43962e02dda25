"""Repeated and restored calls give one result; a call has no side effects."""

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from zoo.conformance.configuration import Configuration, Outcome, Setting, differ_by
from zoo.conformance.side_effects import differences, listed, shared_state, state_of
from zoo.conformance.tensors import (
    DIM,
    LENGTH,
    LONG,
    SCATTERED,
    distance,
    output,
    padding_masks,
    random_tokens,
    seeded,
    with_gradients,
)
from zoo.contract import Attended, Attention

DRAWS = 16  # Samples with different dropout, whose mean is taken

# The largest difference from 1 of the mean relative to the output without dropout.
# Without the factor 1 / (1 - p) it is 0.4, and 0.5 with a factor 1 / p.
DROPOUT, DROPOUT_BOUND = 0.4, 0.2


def check_eval(configuration: Configuration) -> Outcome:
    """Two evaluations are bitwise equal, for any state of the random generator and any dropout."""
    x, differ = random_tokens(2), 0
    for dropout in (0.5, 0.1, 0.0):
        layer = configuration.layer(dropout=dropout).eval()
        first = output(layer, x)
        torch.rand(7)
        differ += int((output(layer, x) != first).sum())
    return Outcome(differ == 0, f"{differ} of {3 * x.numel()} entries differ in the second call")


def check_dropout(configuration: Configuration) -> Outcome:
    """In evaluation, the output does not depend on the dropout of the size."""
    x = random_tokens(2)
    without, *others = (
        output(configuration.layer(dropout=dropout).eval(), x) for dropout in (0.0, 0.1, 0.5)
    )
    return differ_by(distance(other, without) for other in others)


def check_declared_dropout(configuration: Configuration) -> Outcome:
    """Dropout changes training outputs if `drops_weights` says so, not their mean over seeds."""
    # The mean is of a variant that is not stochastic: a slope of 1 to the output without dropout.
    masks = SCATTERED[2:].expand(DRAWS, -1), None
    outcomes = [_dropped(configuration, mask) for mask in masks]
    return min(outcomes, key=lambda outcome: outcome.passed)


def _dropped(configuration: Configuration, mask: Tensor | None) -> Outcome:
    x, outputs = random_tokens(1).repeat(DRAWS, 1, 1), []
    real = ... if mask is None else mask
    plain, dropping = (configuration.layer(dropout=dropout) for dropout in (0.0, DROPOUT))
    for layer, seed in ((plain, 5), (dropping, 5), (dropping, 6)):
        with seeded(seed), torch.no_grad():
            outputs.append(output(layer, x, mask)[real].reshape(DRAWS, -1, DIM))
    without, first, second = outputs
    change, declared = distance(first, without), configuration.variant.drops_weights
    detail = f"outputs change by {change:.2g} with dropout; drops_weights={declared}"
    if not (change and declared):
        return Outcome((change > 0.0) == declared, detail)
    pairs = without, torch.cat([first, second])
    expected, mean = (part.mean(0) - part.mean((0, 1)) for part in pairs)
    slope = ((mean * expected).sum() / expected.square().sum()).item()
    other = distance(second, first)
    right = configuration.traits.stochastic or abs(slope - 1) <= DROPOUT_BOUND
    detail += f"; by {other:.2g} with another seed; their mean is {slope:.2g} times the output"
    return Outcome(
        other > 0.0 and right, f"{detail} without it, 1 to within {DROPOUT_BOUND} allowed"
    )


def check_seed(configuration: Configuration) -> Outcome:
    """Layer, outputs and gradients from one seed, with dropout, are bitwise equal in two runs."""
    runs = []
    for _ in range(2):
        layer = configuration.layer(dropout=0.2).float()
        x = random_tokens(3).float().requires_grad_()
        runs.append(seeded_results(layer, layer, x, SCATTERED))
    differ = sum(not torch.equal(first, second) for first, second in zip(*runs, strict=True))
    return Outcome(differ == 0, f"{differ} of {len(runs[0])} tensors differ in the second run")


def check_modes(configuration: Configuration) -> Outcome:
    """Without dropout, training gives the output of evaluation."""
    layer, x, distances = configuration.layer(), random_tokens(3), []
    for mask in (None, SCATTERED):
        real = ... if mask is None else mask
        trained, evaluated = (output(layer.train(mode), x, mask)[real] for mode in (True, False))
        distances.append(distance(trained, evaluated))
    return differ_by(distances)


def check_state_dict(configuration: Configuration) -> Outcome:
    """A second layer with the `state_dict` of the first gives bitwise equal outputs."""
    layer, x = configuration.layer(short_conv=4).eval(), random_tokens(2)
    other = configuration.layer(short_conv=4, seed=9).eval()
    other.load_state_dict(layer.state_dict())
    return differ_by([distance(output(other, x), output(layer, x))], bound=0.0)


def seeded_results(
    layer: Attention, run: Callable[..., Attended], x: Tensor, mask: Tensor | None
) -> list[Tensor]:
    with seeded(2):
        attended = run(x, x, mask)
    if torch.is_grad_enabled():
        return with_gradients(layer, x, attended, mask)
    return [attended.tokens, *attended.losses.values()]


def check_without_gradients(configuration: Configuration) -> Outcome:
    """Evaluation under `no_grad` and `inference_mode` gives the output of other evaluation."""
    distances = []
    for samples, n, size in ((3, LENGTH, {}), (3, LENGTH, {"short_conv": 4}), (40, 16, {}),
                             (2, LONG, {"max_len": LONG})):  # fmt: skip
        layer, x = configuration.layer(**size).eval(), random_tokens(samples, n)
        for mask in (None, padding_masks(n)[1][torch.arange(samples) % 3]):
            real, expected = ... if mask is None else mask, Setting().run(layer, x, mask).tokens
            for disabled in (torch.no_grad, torch.inference_mode):
                with disabled():
                    tokens = Setting().run(layer, x, mask).tokens
                distances.append(distance(tokens[real], expected[real]))
    return differ_by(distances)


def check_side_effects(configuration: Configuration) -> Outcome:
    """A forward pass writes to no attribute, parameter, buffer, token, mask, class or module."""
    # Nor does it set the seed of the random generator.
    changed: set[str] = set()
    mask = torch.cat([SCATTERED, torch.zeros_like(SCATTERED[:1])])
    for training, gradients in product((True, False), repeat=2):
        layer, x = configuration.layer(dropout=0.2).train(training), random_tokens(4)
        context = x[:, ::2].clone()
        # A call with a mask copies the tokens.
        calls = [(x, None), (x, mask.clone()), (context, None)]
        for context, real in calls[: 2 + configuration.crosses]:
            inputs, states = {"x": x, "context": context, "mask": real}, []
            before, shared = dict(state_of(layer, inputs)), []
            with torch.set_grad_enabled(gradients):
                # Other tokens in the second call: what is kept of the first one differs.
                for seed, tokens in (1, x), (2, 2 * x):
                    torch.manual_seed(seed)
                    layer(tokens, tokens if context is x else context, real)
                    states.append(torch.get_rng_state())
                    shared.append(dict(shared_state(layer)))
            changed |= {*differences(before, dict(state_of(layer, inputs)))}
            # The first call of a shape may fill a table.
            changed |= {*differences(*shared)}
            changed |= {"the seed"} if torch.equal(*states) else set()
    return Outcome(not changed, f"changed: {listed(sorted(changed))}")
