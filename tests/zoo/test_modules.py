"""Linear layers as others use them: hooks, pruning and quantisation."""

import copy

import pytest
import torch
from torch import nn
from torch.ao.quantization import quantize_dynamic
from torch.nn.utils import prune

from tests.zoo.oracle import create
from zoo.variants.primal_forms import are_plain


def linears(layer):
    return [module for module in layer.modules() if isinstance(module, nn.Linear)]


@pytest.mark.filterwarnings("ignore:.*quantization.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["primal", "fox", "delta"])
@torch.no_grad()
def test_hooks_run_and_pruned_and_quantised_weights_count(name):
    layer, x = create(name, dim=16, max_len=64, causal=True).float().eval(), torch.randn(2, 50, 16)
    expected, called = layer(x).tokens, []
    for linear in linears(hooked := copy.deepcopy(layer)):
        linear.register_forward_hook(lambda module, *_: called.append(module))
    torch.testing.assert_close(hooked(x).tokens, expected, rtol=1e-4, atol=1e-5)
    assert {*called} == {*linears(hooked)}
    pruned = copy.deepcopy(layer)
    for linear in linears(pruned):
        prune.l1_unstructured(linear, "weight", 0.5)
    assert (pruned(x).tokens - expected).abs().max() > 1e-3
    quantised = quantize_dynamic(layer, {nn.Linear})
    output = quantised(x).tokens
    assert 0 < (output - expected).norm() < 0.2 * expected.norm()
    first, state = quantised.prefill(x[:, :40])
    joined = torch.cat([first, quantised.step(x[:, 40], state)[0][:, None]], dim=1)
    assert (joined - output[:, :41]).norm() < 0.2 * output.norm()


def test_a_weight_is_read_only_from_a_linear_layer_that_nothing_has_changed():
    linear = nn.Linear(3, 4)
    assert are_plain(linear, nn.Linear(4, 4))
    changed = [copy.deepcopy(linear) for _ in range(4)]
    changed[0].register_forward_hook(lambda *_: None)
    changed[1].forward = lambda x: x
    nn.utils.parametrizations.weight_norm(changed[2])
    prune.l1_unstructured(changed[3], "weight", 0.5)
    for module in (*changed, nn.Bilinear(1, 1, 1), nn.Identity()):
        assert not are_plain(linear, module)
