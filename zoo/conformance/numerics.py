"""Lengths, precisions and scales of the input; gradients."""

from collections.abc import Iterator, Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from zoo.conformance.configuration import Configuration, Outcome, all_finite
from zoo.conformance.tensors import (
    distance,
    output,
    padding_masks,
    random_tokens,
    seeded,
    with_gradients,
)

LENGTHS = (1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 128, 129, 160)
"""Around the block sizes in use, up to the largest that the layer is built for."""

DOMINANT = 10.0
"""The largest ratio, in a module, of the gradient of an auxiliary loss to that of the task."""


def check_lengths(configuration: Configuration) -> Outcome:
    """Every length gives an output of the right shape, finite, with finite gradients."""
    layer, bad = configuration.layer(), []
    for n in LENGTHS:
        x = random_tokens(2, n).requires_grad_()
        tokens, *others = with_gradients(layer, x, layer(x))
        if tokens.shape != x.shape or not all_finite([tokens, *others]).passed:
            bad.append(n)
    return Outcome(not bad, f"lengths {LENGTHS}: {f'failed at {bad}' if bad else 'all pass'}")


def check_precisions(configuration: Configuration) -> Outcome:
    """fp32 and bf16 modules keep their dtype; they, and autocast, agree with fp64."""
    x = random_tokens(2)
    exact = output(configuration.layer().eval(), x)
    passed, details = True, []
    fp32, bf16 = torch.float32, torch.bfloat16
    for dtype, autocast, bound in ((fp32, False, 1e-3), (bf16, False, 0.3), (fp32, True, 0.3)):
        with torch.autocast("cpu", bf16, enabled=autocast):
            tokens = output(configuration.layer().to(dtype).eval(), x.to(dtype))
        error, keeps = distance(tokens.double(), exact), autocast or tokens.dtype == dtype
        passed &= keeps and error <= bound
        other = "" if keeps else f" with an output of {tokens.dtype}"
        details.append(f"{'autocast' if autocast else dtype} differs by {error:.1g}{other}")
    return Outcome(passed, ", ".join(details).replace("torch.", ""))


def check_large_inputs(configuration: Configuration) -> Outcome:
    """Inputs a thousand times larger give finite outputs and gradients in fp32."""
    layer = configuration.layer().float()
    x = (1e3 * random_tokens(2)).float().requires_grad_()
    return all_finite(with_gradients(layer, x, layer(x)))


def check_parameters(configuration: Configuration) -> Outcome:
    """Each parameter gets a gradient that is finite and not zero."""
    layer, mask = configuration.layer(), padding_masks()[0]
    x, names = random_tokens(3).requires_grad_(), [n for n, _ in layer.named_parameters()]
    results = with_gradients(layer, x, layer(x, mask=mask), mask)
    gradients = results[len(results) - len(names) :]
    missing = [
        name
        for name, gradient in zip(names, gradients, strict=True)
        if not gradient.isfinite().all() or not gradient.any()
    ]
    return Outcome(
        not missing, f"of {len(names)} parameters without a gradient: {missing or 'none'}"
    )


def check_finite_differences(configuration: Configuration) -> Outcome:
    """Gradients of outputs and losses equal finite differences, at a small size, with padding.

    In evaluation, all derivatives with respect to the tokens; in both modes, those with respect to
    tokens and parameters, along random directions. A difference raises `GradcheckError`.
    """
    layer, mask = configuration.layer(max_len=8, dim=4), torch.ones(2, 6, dtype=torch.bool)
    mask[1, 4:] = False
    x = (0.7 * random_tokens(2, 6, dim=4)).requires_grad_()
    names, inputs = zip(*[("", x), *layer.named_parameters()], strict=True)

    def run(tokens: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        with seeded(5):
            named = dict(zip(names[1:], state, strict=False))
            attended = functional_call(layer, named, (tokens, tokens, mask))
        return attended.tokens[mask], *attended.losses.values()

    gradcheck = partial(torch.autograd.gradcheck, run, eps=1e-6, atol=1e-5, rtol=1e-4)
    layer.eval()
    gradcheck((x,))
    for training in (False, True):
        layer.train(training)
        gradcheck(inputs, fast_mode=True)
    return Outcome(True, "equal finite differences to 1e-05")


def check_losses(configuration: Configuration) -> Outcome:
    """In a fresh model, gradients of the auxiliary losses are below ten times those of the task.

    Of each module that both train: the ratio of the norms of the two gradients. A ratio far above
    1 means that the optimiser follows the auxiliary loss alone.
    """
    ratios = dict(_ratios(configuration))
    if not ratios:
        return Outcome(True, "no module is trained by both losses")
    module = max(ratios, key=ratios.__getitem__)
    ratio = ratios[module]
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
    """The norm of the gradient of each module's own parameters."""
    inputs = list(named.values())
    gradients = torch.autograd.grad(loss, inputs, retain_graph=True, materialize_grads=True)
    squares: dict[str, float] = {}
    for name, gradient in zip(named, gradients, strict=True):
        layer, _, parameter = name.partition(".")
        module = f"{parameter.rpartition('.')[0] or 'its own parameters'} of layer {layer}"
        squares[module] = squares.get(module, 0.0) + gradient.square().sum().item()
    return {module: square**0.5 for module, square in squares.items()}
