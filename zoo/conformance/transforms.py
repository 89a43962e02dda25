"""`torch.compile` and `torch.func.vmap`."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from zoo.conformance.configuration import ROUNDING, Configuration, Outcome, at_most
from zoo.conformance.tensors import LENGTH, SCATTERED, distance, output, probe_loss, random_tokens
from zoo.contract import Attended, Attention
from zoo.registry import in_one_line


def check_compile(configuration: Configuration) -> Outcome:
    """One graph through `torch.compile`: evaluation, and padded training with its gradients."""
    layer, x, worst = configuration.layer(), random_tokens(3, LENGTH).requires_grad_(), 0.0
    for mask, training in ((None, False), (SCATTERED, True)):
        torch.compiler.reset()
        layer.train(training)
        try:
            compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
            with torch.set_grad_enabled(training):
                results = outputs_and_gradients(layer, compiled, x, mask)
                expected = outputs_and_gradients(layer, layer, x, mask)
        except Exception as error:
            return Outcome(False, in_one_line(error))
        pairs = zip(results, expected, strict=True)
        worst = max(worst, *(distance(one, other) for one, other in pairs))
    return at_most(worst, ROUNDING, "differ by")


def outputs_and_gradients(
    layer: Attention, run: Callable[..., Attended], x: Tensor, mask: Tensor | None
) -> list[Tensor]:
    """Outputs, losses and gradients of `run`, which is `layer` or a form of it, from one seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        attended = run(x, x, mask)
    results = [attended.tokens, *attended.losses.values()]
    if not torch.is_grad_enabled():
        return results
    inputs, loss = [x, *layer.parameters()], probe_loss(attended, mask)
    return [*results, *torch.autograd.grad(loss, inputs, materialize_grads=True)]


def check_vmap(configuration: Configuration) -> Outcome:
    """`torch.func.vmap` over sets of parameters gives each its own output, padded or not."""
    layers = [configuration.layer(seed=seed).eval() for seed in (1, 2)]
    x, worst = random_tokens(3, LENGTH), 0.0
    if not layers[0].state_dict():
        return Outcome(True, "no parameters that could differ")
    state = stack_module_state(layers)
    for mask in (None, SCATTERED):

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], mask=mask) -> Tensor:
            return functional_call(layers[0], (parameters, buffers), (x, x, mask)).tokens

        try:
            with warnings.catch_warnings():
                # A kernel without a batching rule is slower, and warns, but is correct.
                warnings.simplefilter("ignore")
                tokens = vmap(one)(*state)
        except Exception as error:
            return Outcome(False, in_one_line(error))
        expected = torch.stack([output(layer, x, mask) for layer in layers])
        worst = max(worst, distance(tokens, expected))
    return at_most(worst, ROUNDING, "differ by")
