"""Auxiliary losses are declared in the traits, and do not dominate the loss of the task."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.conformance.configuration import Configuration, Outcome
from zoo.conformance.tensors import random_tokens

# The largest ratio, in a module, of the gradients of an auxiliary loss and of the task.
DOMINANT = 10.0


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
