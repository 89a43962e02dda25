"""The claim that a variant equals another one at some settings."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from zoo.conformance.configuration import Configuration, Outcome, Setting
from zoo.conformance.tensors import SCATTERED, distance, probe_loss
from zoo.contract import Identity
from zoo.registry import resolve
from zoo.variants import variants

# The relative difference that another order of operations may cause in double precision.
ROUNDING = 1e-12


def check_identities(configuration: Configuration) -> Outcome:
    """Outputs and gradients of the tokens equal the other variant's, padded or not."""
    passed, details = True, []
    for identity in of(configuration):
        largest = max(_distances(identity, configuration))
        equal = largest <= ROUNDING
        passed &= equal
        precision = "to the bit" if identity.exact else f"to {ROUNDING:.0e}"
        result = precision if equal else f"differs by {largest:.2g}, not equal {precision}"
        details.append(f"{identity.where}: {identity.other}, {result}")
    return Outcome(passed, "; ".join(details))


def of(configuration: Configuration) -> list[Identity]:
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
