"""What a variant claims: linear cost, auxiliary losses, identities, and calls that it refuses."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.conformance.configuration import Configuration, Outcome, Setting
from zoo.conformance.tensors import (
    SCATTERED,
    distance,
    output,
    padding_masks,
    probe_loss,
    random_tokens,
)
from zoo.contract import Identity, Unsupported
from zoo.cost import flops, peak_bytes
from zoo.registry import UserError, resolve
from zoo.variants import variants

# The largest ratio, in a module, of the gradients of an auxiliary loss and of the task.
DOMINANT = 10.0

# The relative difference that another order of operations may cause in double precision.
EQUAL = 1e-12

LENGTHS = (1024, 4096, 16384)  # A cost may become quadratic only where an input is long

# The factor by which a linear cost may exceed the ratio of lengths: sorts, incomplete blocks, and a
# forward pass that long inputs compute again.
SLACK = 1.4

# Whether an input has padding, and whether the layer trains on it.
CALLS = {
    "": (False, True), " with padding": (True, True), " in evaluation": (False, False)
}  # fmt: skip


def check_declared_losses(configuration: Configuration) -> Outcome:
    """Training returns the losses of the traits, finite scalars; evaluation returns none."""
    layer, x = configuration.layer(), random_tokens(2)
    losses = dict(layer(x).losses)
    scalar = all(x.ndim == 0 and x.isfinite() and x.requires_grad for x in losses.values())
    declared, none = list(configuration.traits.losses), not layer.eval()(x).losses
    detail = f"declared {declared}, returned {sorted(losses)}, in evaluation none: {none}"
    return Outcome(set(losses) == set(declared) and scalar and none, detail)


def check_dominance(configuration: Configuration) -> Outcome:
    """In a fresh model, auxiliary losses have less than ten times the gradients of the task."""
    # With more, in any module that both train, the optimiser follows the auxiliary loss alone.
    ratios = dict(_ratios(configuration))
    if not ratios:
        return Outcome(True, "no module is trained by both losses")
    module = max(ratios, key=ratios.__getitem__)
    ratio = ratios[module]
    return Outcome(ratio < DOMINANT, f"{ratio:.2g} times the gradient of the task in {module}")


def _ratios(configuration: Configuration) -> Iterator[tuple[str, float]]:
    x, labels = random_tokens(16, 256, dim=64), torch.arange(16) % 10
    layers = [configuration.layer(max_len=256, dim=64, seed=seed) for seed in (1, 2)]
    losses: list[Tensor] = []
    for layer in layers:
        tokens, auxiliary_losses = layer(F.layer_norm(x, x.shape[-1:]))
        x = x + tokens
        losses.extend(auxiliary_losses.values())
    head = 64**-0.5 * random_tokens(10, 1, seed=3, dim=64)[:, 0]
    pooled = F.layer_norm(x, x.shape[-1:]).mean(1)
    task = F.cross_entropy(pooled @ head.mT, labels)
    # A model averages each loss over its layers.
    auxiliary = torch.stack(losses).sum() / len(layers)
    named = dict(nn.ModuleList(layers).named_parameters())
    task_norms, auxiliary_norms = (_norms(loss, named) for loss in (task, auxiliary))
    for module, norm in auxiliary_norms.items():
        if norm and task_norms[module]:
            yield module, norm / task_norms[module]


def _norms(loss: Tensor, named: Mapping[str, Tensor]) -> dict[str, float]:
    inputs = list(named.values())
    gradients = torch.autograd.grad(loss, inputs, retain_graph=True, materialize_grads=True)
    squares: dict[str, float] = {}
    for name, gradient in zip(named, gradients, strict=True):
        layer, _, parameter = name.partition(".")
        module = f"{parameter.rpartition('.')[0] or 'the parameters'} of layer {layer}"
        squares[module] = squares.get(module, 0.0) + gradient.square().sum().item()
    return {module: square**0.5 for module, square in squares.items()}


def check_identities(configuration: Configuration) -> Outcome:
    """Outputs and gradients of the tokens equal the other variant's, padded or not."""
    passed, details = True, []
    for identity in identities_of(configuration):
        largest = max(_distances(identity, configuration))
        equal = largest <= EQUAL
        passed &= equal
        precision = "to the bit" if identity.exact else f"to {EQUAL:.0e}"
        result = precision if equal else f"differs by {largest:.2g}, not equal {precision}"
        details.append(f"{identity.where}: {identity.other}, {result}")
    return Outcome(passed, "; ".join(details))


def identities_of(configuration: Configuration) -> list[Identity]:
    return [
        identity
        for identity in configuration.variant.identities
        if configuration.causal in variants.find(identity.other).traits.forms
    ]


def _distances(identity: Identity, configuration: Configuration) -> Iterator[float]:
    forms = [
        replace(configuration, name=name, variant=variant, options=resolve(name, variant, options))
        for name, variant, options in (
            (configuration.name, configuration.variant, identity.options),
            (identity.other, variants.find(identity.other), identity.other_options),
        )
    ]
    settings = Setting(), Setting(rotary=True, heads=1), Setting(heads=3, dim=15)
    for setting in map(configuration.accepted, settings):
        x = setting.tokens(3).requires_grad_()
        layer, other = (form.layer_for(setting) for form in forms)
        state = other.state_dict()
        shared = {name: value for name, value in layer.state_dict().items()
                  if name in state and state[name].shape == value.shape}  # fmt: skip
        other.load_state_dict(shared, strict=False)
        with torch.no_grad():
            identity.prepare(layer, other)
        for mask in (None, SCATTERED):
            outputs, gradients = [], []
            for module in (layer, other):
                result = setting.run(module, x, mask)
                real = torch.ones_like(x[..., 0], dtype=torch.bool) if mask is None else mask
                outputs.append(result.tokens[real])
                gradients += torch.autograd.grad(probe_loss(result, real), x)
            differs = identity.exact and not torch.equal(*outputs)
            yield float("inf") if differs else distance(*outputs)
            yield distance(*gradients)


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


def check_flops(configuration: Configuration) -> Outcome:
    """FLOPs of forward and backward, and of evaluation, at three lengths."""
    return _growth(configuration, flops, "FLOPs")


def check_memory(configuration: Configuration) -> Outcome:
    """Peak memory of forward and backward, and of evaluation, at three lengths."""

    def peak(step: Callable[[], None]) -> int:
        # The second call: the first allocates gradients, and tables that are kept.
        step()
        return peak_bytes(step, torch.device("cpu"))

    return _growth(configuration, peak, "peak memory")


def _growth(
    configuration: Configuration, cost: Callable[[Callable[[], None]], int], quantity: str
) -> Outcome:
    passed, details = True, []
    for call, (padded, training) in CALLS.items():
        costs, ratios = [cost(_step(configuration, LENGTHS[0], padded, training))], []
        for shorter, longer in pairwise(LENGTHS):
            costs.append(cost(_step(configuration, longer, padded, training)))
            ratio = costs[-1] / costs[-2] if costs[-2] else longer / shorter
            ratios.append(f"{ratio:.2f} times for {longer:,} tokens instead of {shorter:,}")
            if ratio > longer / shorter * SLACK:
                passed = False
                break
        details.append(f"{quantity}{call} {', '.join(ratios)}")
    return Outcome(passed, "; ".join(details))


def _step(configuration: Configuration, n: int, padded: bool, training: bool) -> Callable[[], None]:
    layer = configuration.layer(max_len=n).float().train(training)
    x = random_tokens(1, n).float().requires_grad_()
    mask = (torch.arange(n) < n * 3 // 4)[None] if padded else None

    def step() -> None:
        with torch.set_grad_enabled(training):
            loss = output(layer, x, mask).square().mean()
        if training:
            loss.backward()

    return step
