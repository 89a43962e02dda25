"""Gradients of parameters and of auxiliary losses, and a comparison with finite differences."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from zoo.conformance.configuration import Configuration, Outcome
from zoo.conformance.tensors import LENGTH, padding_masks, probe_loss, random_tokens
from zoo.registry import first_line

DOMINANT = 10.0
"""The largest ratio, in a module, of the gradient of an auxiliary loss to that of the task."""


def check_parameters(configuration: Configuration) -> Outcome:
    """Each parameter gets a gradient that is finite and not zero."""
    layer, mask = configuration.layer(), next(padding_masks())
    loss = probe_loss(layer(random_tokens(3, LENGTH), mask=mask), mask)
    if loss.requires_grad:
        loss.backward()
    missing = [
        name
        for name, parameter in layer.named_parameters()
        if parameter.grad is None or not parameter.grad.isfinite().all() or not parameter.grad.any()
    ]
    count = sum(1 for _ in layer.parameters())
    return Outcome(not missing, f"of {count} parameters without a gradient: {missing or 'none'}")


def check_finite_differences(configuration: Configuration) -> Outcome:
    """Gradients of outputs and losses equal finite differences, at a small size, with padding.

    In evaluation, all derivatives with respect to the tokens; in both modes, those with respect to
    tokens and parameters, along random directions.
    """
    layer, mask = configuration.layer(max_len=8, dim=4), torch.ones(2, 6, dtype=torch.bool)
    mask[1, 4:] = False
    x = (0.7 * random_tokens(2, 6, dim=4)).requires_grad_()
    names, inputs = zip(*[("", x), *layer.named_parameters()], strict=True)

    def run(tokens: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            named = dict(zip(names[1:], state, strict=False))
            attended = functional_call(layer, named, (tokens, tokens, mask))
        return attended.tokens[mask], *attended.losses.values()

    try:
        layer.eval()
        torch.autograd.gradcheck(run, (x,), eps=1e-6, atol=1e-5, rtol=1e-4)
        for training in (False, True):
            layer.train(training)
            torch.autograd.gradcheck(run, inputs, eps=1e-6, atol=1e-5, rtol=1e-4, fast_mode=True)
    except RuntimeError as error:
        return Outcome(False, f"differ from finite differences: {first_line(error)}")
    return Outcome(True, "equal finite differences to 1e-05")


def check_losses(configuration: Configuration) -> Outcome:
    """In a fresh model, gradients of the auxiliary losses are below ten times those of the task.

    Of each module that both train: the ratio of the norms of the two gradients. A ratio far above
    1 means that the optimiser follows the auxiliary loss alone.
    """
    ratios = dict(_ratios(configuration))
    if not ratios:
        return Outcome(True, "no module is trained by both losses")
    module, ratio = max(ratios.items(), key=lambda item: item[1])
    return Outcome(ratio < DOMINANT, f"{ratio:.2g} times the gradient of the task in {module}")


def _ratios(configuration: Configuration) -> Iterator[tuple[str, float]]:
    """The ratio of the two gradients in each module of two pre-norm layers with a classifier."""
    x, labels = random_tokens(16, 256, dim=64), torch.arange(16) % 10
    layers = [configuration.layer(max_len=256, dim=64, seed=seed) for seed in (1, 2)]
    losses: list[Tensor] = []
    for layer in layers:
        tokens, auxiliary_losses = layer(F.layer_norm(x, x.shape[-1:]))
        x = x + tokens
        losses.extend(auxiliary_losses.values())
    head = 64**-0.5 * random_tokens(10, seed=3, dim=64)
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
    """The norm of the gradient of each module's own parameters."""
    inputs = list(named.values())
    gradients = torch.autograd.grad(loss, inputs, retain_graph=True, materialize_grads=True)
    squares: dict[str, float] = {}
    for name, gradient in zip(named, gradients, strict=True):
        layer, _, parameter = name.partition(".")
        module = f"{parameter.rpartition('.')[0] or 'its own parameters'} of layer {layer}"
        squares[module] = squares.get(module, 0.0) + gradient.square().sum().item()
    return {module: square**0.5 for module, square in squares.items()}
