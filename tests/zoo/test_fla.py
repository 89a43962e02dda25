"""Layers of flash-linear-attention: built and called as the package wants it, absent elsewhere."""

import re
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from zoo.contract import Size, Unsupported
from zoo.registry import UserError
from zoo.variants import fla, variants

SIZE = Size(dim=8, heads=2, max_len=300, causal=False, dropout=0.0)
KEEP = torch.arange(9) < torch.tensor([9, 6])[:, None]


class Published(torch.nn.Module):
    """Stands in for a layer of `fla.layers`: doubles tokens, and notes what it was given."""

    def __init__(self, hidden_size, num_heads, head_dim=None):
        super().__init__()
        self.built = (hidden_size, num_heads, head_dim)

    def forward(self, hidden_states, attention_mask=None):
        self.mask = attention_mask
        return 2 * hidden_states, None, None


@pytest.fixture
def flash_linear(monkeypatch):
    """A machine that has flash-linear-attention, by pretence."""
    layers = ModuleType("fla.layers")
    for layer in fla.LAYERS.values():
        setattr(layers, layer.layer, Published)
    monkeypatch.setitem(sys.modules, "fla", ModuleType("fla"))
    monkeypatch.setitem(sys.modules, "fla.layers", layers)
    monkeypatch.setattr(fla, "find_spec", lambda _: SimpleNamespace())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.parametrize("name", fla.LAYERS)
def test_a_layer_of_flash_linear_attention_gets_tokens_and_mask(name, flash_linear):
    layer, x, mask = fla.LAYERS[name](SIZE), torch.randn(2, 9, 8), KEEP
    assert torch.equal(layer(x, x, mask).tokens, 2 * x)
    assert layer.inner.built[:2] == (8, 2)
    assert torch.equal(layer.inner.mask, mask.int())
    layer(x, x, None)
    assert layer.inner.mask is None


def test_the_gated_delta_net_has_heads_as_wide_as_the_others(flash_linear):
    assert fla.GatedDeltaNet(SIZE).inner.built == (8, 2, 4)


def test_a_foreign_context_is_refused_by_flash_linear_attention(flash_linear):
    x = torch.randn(2, 9, 8)
    with pytest.raises(Unsupported, match="attends to its own input only"):
        fla.DeltaNet(SIZE)(x, x.clone(), None)


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("fla", "flash-linear-attention is not installed; pip install flash-linear-attention"),
        ("triton", "triton is not installed; pip install triton"),
        ("cuda", "need a CUDA device, and there is none"),
    ],
)
def test_what_flash_linear_attention_lacks_is_named(missing, reason, flash_linear, monkeypatch):
    assert fla.absence() == ""
    monkeypatch.setattr(fla, "find_spec", lambda name: None if name == missing else object())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: missing != "cuda")
    with pytest.raises(Unsupported, match=f"layers.DeltaNet is not available here: .*{reason}"):
        fla.DeltaNet(SIZE)


def test_layers_that_cannot_run_are_not_listed():
    listed = set(fla.LAYERS) & set(variants.names())
    assert listed == (set() if fla.absence() else set(fla.LAYERS))


@pytest.mark.skipif(not fla.absence(), reason="they can run here")
@pytest.mark.parametrize("name", fla.LAYERS)
def test_who_asks_for_a_layer_that_cannot_run_learns_why(name):
    with pytest.raises(UserError, match=f"'{name}' cannot run here: {re.escape(fla.absence())}"):
        variants.find(name)
