"""Gradients of long fp32 inputs, with a graph, and of gradients."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import zoo
from zoo.conformance import CHECKS, configurations, run
from zoo.kernels import collisions, eager
from zoo.variants import variants

DECAYS = {
    "fox": ("forget.bias", slice(None), (0.0,)),
    "gated-delta": ("decay.bias", slice(None), (-5.0, 0.0, 5.0)),
    "gated-linear": ("forget.1.bias", slice(None), (5.0, 0.0, -20.0)),
    "gdn2": ("decay.bias", slice(None), (-5.0, 0.0, 5.0)),
    "kda": ("decay.bias", slice(None), (-5.0, 0.0, 5.0)),
    "log-linear": ("decay.bias", slice(None), (10.0, 0.0, -20.0)),
    "mamba2": ("decay.bias", slice(None), (-5.0, 0.0, 5.0)),
    "mesa": ("gates.bias", slice(0, 2), (5.0, 0.0, -20.0)),
    "rwkv7": ("decay.2.bias", slice(None), (-5.0, 0.0, 5.0)),
    "ssd": ("decay.bias", slice(None), (5.0, 0.0, -20.0)),
}
"""The bias of the gates, the part that is of decays, and what makes them weak and strong."""

OF_DECAYS = "decay", "forget", "gates", "norm"

PARAMETERS = {
    ("log-linear", 10.0): 5e-5, ("mesa", -20.0): 2e-5, ("ssd", 5.0): 2e-5, ("kda", 5.0): 2e-5,
    ("fox", 0.0): 5e-4,
}  # fmt: skip
"""Bounds of parameters whose gradients cancel in the sum over tokens; of others 1e-5.

With the mechanism in fp64, and projections and norm in fp32, the errors of log-linear, mesa, ssd
and fox are 1.2e-5, 1.1e-5, 1.9e-5 and 3.4e-5. Without vector instructions that of log-linear is
2.4e-5, also with its norm and output in fp64.
"""


def results(layer: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """The outputs, and the gradients of decays."""
    with tap_outputs(layer) as taps:
        out = layer(x).tokens
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    chosen = {n: t for n, t in [*layer.named_parameters(), *taps] if n.startswith(OF_DECAYS)}
    found = out, *torch.autograd.grad((out * weights).sum(), [*chosen.values()])
    return dict(zip(("tokens", *chosen), (x.detach().double() for x in found), strict=True))


@contextmanager
def tap_outputs(layer: nn.Module) -> Iterator[list[tuple[str, torch.Tensor]]]:
    taps = []
    hooks = [
        module.register_forward_hook(lambda _, __, y, name=name: taps.append((f"{name} output", y)))
        for name, module in layer.named_modules()
        if isinstance(module, nn.Linear)
    ]
    yield taps
    for hook in hooks:
        hook.remove()


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(("name", "causal", "shift"), [
    (name, causal, shift)
    for name, (_, _, shifts) in DECAYS.items()
    for causal in variants.find(name).traits.forms
    for shift in shifts
])  # fmt: skip
def test_outputs_and_gradients_of_decays_of_any_strength_are_exact_in_fp32(name, causal, shift):
    torch.manual_seed(0)
    layer = zoo.create(name, dim=16, heads=2, max_len=4000, causal=causal)
    bias, part, _ = DECAYS[name]
    with torch.no_grad():
        layer.get_parameter(bias)[part] += shift
    x = torch.randn(1, 4000, 16)
    found, exact = results(layer, x), results(layer.double(), x.double())
    errors = {
        key: ((found[key] - value).abs().max() / value.abs().max()).item()
        for key, value in exact.items()
    }
    of_tokens = {key: e for key, e in errors.items() if key.endswith(("output", "tokens"))}
    assert len(of_tokens) > 1
    assert max(of_tokens.values()) <= 1e-5, of_tokens
    assert max(errors.values()) <= PARAMETERS.get((name, shift), 1e-5), errors


@pytest.mark.parametrize(("dim", "length"), [(16, 30.0), (64, 36.0)])
def test_causal_performer_is_exact_in_fp32_up_to_the_length_of_keys_that_it_names(dim, length):
    layer: Any = zoo.create("performer", dim=dim, heads=1, max_len=256, causal=True).eval()
    q, k, v = torch.randn(3, 1, 1, 256, dim).double()
    q, k = (length * nn.functional.normalize(part, dim=-1) for part in (q, k))
    found, exact = (
        layer.to(dtype).attend(*(x.to(dtype) for x in (q, k, v)), None).double()
        for dtype in (torch.float32, torch.float64)
    )
    assert (found - exact).abs().max() <= 1e-5 * exact.abs().max()


NAMES = sorted(n for n in variants.names() if not variants.find(n).unchecked and n[:4] != "fla-")
SECOND = next(check for check in CHECKS if check.name == "second derivatives")


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", NAMES)
def test_plain_operations_have_right_second_derivatives(name):
    for configuration in configurations(name, variants.find(name)):
        with eager.plain_operations():
            result = run(SECOND, configuration)
        assert result.passed, result.detail
        assert "second ones" in result.detail


@pytest.mark.parametrize("name", ["delta", "gated-linear", "linear", "mesa", "primal", "yoso"])
def test_second_derivatives_of_kernels_of_one_derivative_are_an_error(name):
    causal = name not in ("primal", "yoso")
    layer = zoo.create(name, dim=8, heads=2, max_len=600, causal=causal).double()
    # Also where the gradient passed to the kernel depends on no input.
    layer.requires_grad_(False)
    x = torch.randn(1, 600, 8).double().requires_grad_()
    loss = layer(x).tokens.square().sum()
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(zoo.UserError, match="can be differentiated once; compute it inside of"):
        torch.autograd.grad(slope.sum(), x)


def test_collisions_have_a_second_derivative_and_their_lower_bound_has_none():
    s = (2 * torch.rand(1, 1, 4, 5).double() - 1).requires_grad_()
    weigh = collisions.collision_probabilities
    assert torch.autograd.gradgradcheck(lambda s: weigh(s, 3, False), (s,))
    (slope,) = torch.autograd.grad(weigh(s, 3, True).sum(), s, create_graph=True)
    torch.testing.assert_close(slope, weigh(s, 3, True) * 1.5)
    with pytest.raises(zoo.UserError, match=r"yoso.gradient=exact"):
        torch.autograd.grad(slope.sum(), s)
