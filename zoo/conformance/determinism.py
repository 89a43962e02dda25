"""Determinism, auxiliary losses, side effects, and the `state_dict` of a layer."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from zoo.conformance.configuration import ROUNDING, Configuration, Outcome, at_most
from zoo.conformance.tensors import LENGTH, SCATTERED, distance, output, random_tokens
from zoo.conformance.transforms import outputs_and_gradients


def check_eval(configuration: Configuration) -> Outcome:
    """Two evaluations are bitwise equal, for any state of the random generator."""
    layer, x = configuration.layer(dropout=0.5).eval(), random_tokens(2, LENGTH)
    first = output(layer, x)
    torch.rand(7)
    differ = int((output(layer, x) != first).sum())
    return Outcome(differ == 0, f"{differ} of {first.numel()} entries differ in the second call")


def check_seed(configuration: Configuration) -> Outcome:
    """Layer, outputs and gradients from one seed, with dropout, are bitwise equal in two runs."""
    runs = []
    for _ in range(2):
        layer = configuration.layer(dropout=0.2).float()
        x = random_tokens(3, LENGTH).float().requires_grad_()
        runs.append(outputs_and_gradients(layer, layer, x, SCATTERED))
    differ = sum(not torch.equal(one, other) for one, other in zip(*runs, strict=True))
    return Outcome(differ == 0, f"{differ} of {len(runs[0])} tensors differ in the second run")


def check_modes(configuration: Configuration) -> Outcome:
    """Without dropout, training gives the output of evaluation."""
    layer, x, worst = configuration.layer(), random_tokens(3, LENGTH), 0.0
    for mask in (None, SCATTERED):
        real = slice(None) if mask is None else mask
        trained, evaluated = (output(layer.train(mode), x, mask)[real] for mode in (True, False))
        worst = max(worst, distance(trained, evaluated))
    return at_most(worst, ROUNDING, "differ by")


def check_declared_losses(configuration: Configuration) -> Outcome:
    """Training returns the losses of the traits, finite scalars; evaluation returns none."""
    layer, x = configuration.layer(), random_tokens(2, LENGTH)
    losses = dict(layer(x).losses)
    scalar = all(one.ndim == 0 and one.isfinite() and one.requires_grad for one in losses.values())
    none = not layer.eval()(x).losses
    declared = list(configuration.traits.losses)
    return Outcome(
        set(losses) == set(declared) and scalar and none,
        f"declared {declared}, returned {sorted(losses)}, in evaluation none: {none}",
    )


def check_side_effects(configuration: Configuration) -> Outcome:
    """No attribute, parameter, buffer or token changes in a forward pass, in either mode."""
    changed = set()
    for training in (True, False):
        layer = configuration.layer(dropout=0.2).train(training)
        x = random_tokens(3, LENGTH)
        before = dict(_state(layer, x))
        layer(x, mask=SCATTERED)
        after = dict(_state(layer, x))
        changed |= {name for name in before | after if not _same(before.get(name), after.get(name))}
    return Outcome(not changed, f"changed: {sorted(changed) or 'nothing'}")


def _state(layer: nn.Module, x: Tensor) -> Iterator[tuple[str, Any]]:
    """Copies of all that a forward pass could write to, by name."""
    yield "x", x.clone()
    for path, module in layer.named_modules():
        for name, value in vars(module).items():
            inner = dict(value) if name in ("_parameters", "_buffers", "_modules") else {"": value}
            for key, one in inner.items():
                yield ".".join(filter(None, (path, name, key))), _copy(one)


def _copy(value: Any) -> Any:
    """A copy of a tensor or a container; any other value is returned as it is."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copy(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(one) for one in value]
    return set(value) if isinstance(value, set) else value


def _same(one: Any, other: Any) -> bool:
    """Whether two copies are equal."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other if isinstance(one, set) else one is other


def check_state_dict(configuration: Configuration) -> Outcome:
    """A second layer with the `state_dict` of the first gives bitwise equal outputs."""
    layer, x = configuration.layer().eval(), random_tokens(2, LENGTH)
    other = configuration.layer(seed=9).eval()
    other.load_state_dict(layer.state_dict())
    return at_most(distance(output(other, x), output(layer, x)), 0.0, "differ by")
