"""Linear layers of every variant as others use them: hooks, pruning and quantisation."""

import copy

import pytest
import torch
from torch import nn
from torch.ao.quantization import quantize_dynamic
from torch.nn.utils import prune

import zoo
from tests.zoo.oracle import create
from zoo.contract import variants
from zoo.variants.primal_forms import are_plain

FIRST = ["primal", "fox", "delta"]
NAMES = [name for name in zoo.names() if not variants.find(name).unchecked and name not in FIRST]


def layer_of(name):
    """A layer in evaluation mode, in fp32, in which no parameter is 0; and tokens."""
    causal = variants.find(name).traits.causal
    layer = create(name, dim=16, max_len=64, short_conv=4, causal=causal).float().eval()
    for parameter in layer.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.1)
    return layer, torch.randn(2, 50, 16)


def linears(layer):
    return {path: m for path, m in layer.named_modules() if isinstance(m, nn.Linear)}


def tokens(layer, x):
    torch.manual_seed(0)
    return layer(x).tokens


@pytest.mark.filterwarnings("ignore:.*quantization.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.slow_after(3)
@pytest.mark.parametrize("name", FIRST + NAMES)
@torch.no_grad()
def test_hooks_of_linear_layers_run_and_pruned_and_quantised_weights_count(name):
    layer, x = layer_of(name)
    expected, called = tokens(layer, x), set()
    for path, linear in linears(hooked := copy.deepcopy(layer)).items():
        linear.register_forward_hook(lambda *_, path=path: called.add(path))
    torch.testing.assert_close(tokens(hooked, x), expected, rtol=1e-4, atol=1e-5)
    assert called == set(linears(layer))

    pruned, merged = copy.deepcopy(layer), copy.deepcopy(layer)
    for pair in zip(linears(pruned).values(), linears(merged).values(), strict=True):
        for linear in pair:
            prune.l1_unstructured(linear, "weight", 0.5)
        prune.remove(pair[1], "weight")
    torch.testing.assert_close(tokens(pruned, x), tokens(merged, x), rtol=1e-4, atol=1e-5)
    assert not called or (tokens(pruned, x) - expected).abs().max() > 1e-3

    quantised = quantize_dynamic(layer, {nn.Linear})
    output = tokens(quantised, x)
    assert not called or 0 < (output - expected).norm() < 0.2 * expected.norm()
    if layer.size.causal and layer.decodes():
        first, state = quantised.prefill(x[:, :40])
        last, _ = quantised.step(x[:, 40], state)
        joined = torch.cat([first, last[:, None]], dim=1)
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
