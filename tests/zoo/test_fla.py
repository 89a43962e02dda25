"""Layers of flash-linear-attention: how they call the package, and what they need."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch

from zoo.contract import Size, Unsupported
from zoo.variants import fla, variants

SIZE = Size(dim=8, heads=2, max_len=300, causal=False, dropout=0.0)
MASK = torch.arange(9) < torch.tensor([9, 6])[:, None]
LAYERS = [name for name, variant in variants.items() if issubclass(variant, fla.FlashLinear)]
every_layer = pytest.mark.parametrize("name", LAYERS)


class Published(torch.nn.Module):
    """Replaces a layer of `fla.layers`: doubles tokens, and records its arguments."""

    def __init__(self, hidden_size, num_heads, head_dim=None):
        super().__init__()
        self.arguments = (hidden_size, num_heads, head_dim)

    def forward(self, hidden_states, attention_mask=None):
        self.mask = attention_mask
        return 2 * hidden_states, None, None


@pytest.fixture
def installed(monkeypatch):
    """A machine with flash-linear-attention, triton and CUDA."""
    for name in ("fla", "triton", "fla.layers"):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    for name in LAYERS:
        setattr(sys.modules["fla.layers"], variants.find(name).__name__, Published)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@every_layer
def test_the_layer_of_the_package_gets_tokens_and_mask(name, installed):
    layer, x = variants.find(name)(SIZE), torch.randn(2, 9, 8)
    assert torch.equal(layer(x, mask=MASK).tokens, 2 * x)
    assert layer.inner.arguments[:2] == (8, 2)
    assert torch.equal(layer.inner.mask, MASK.int())
    layer(x)
    assert layer.inner.mask is None


def test_the_gated_delta_net_gets_the_width_of_a_head(installed):
    assert fla.GatedDeltaNet(SIZE).inner.arguments == (8, 2, 4)


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("fla", "flash-linear-attention is not installed; pip install flash-linear-attention"),
        ("triton", "triton is not installed; pip install triton"),
        ("cuda", "its kernels need a CUDA device, and there is none"),
    ],
)
def test_a_missing_requirement_is_named(missing, reason, installed, monkeypatch):
    assert fla.missing_requirement() == ""
    if missing == "cuda":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    else:
        monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(Unsupported, match=f"^fla-deltanet cannot run here: {reason}"):
        fla.DeltaNet(SIZE)


@pytest.mark.skipif(not fla.missing_requirement(), reason="they can run here")
@every_layer
def test_a_layer_that_cannot_run_is_listed_and_cannot_be_built(name):
    assert name in variants.names()
    with pytest.raises(Unsupported, match=f"^{name} cannot run here: .*; (pip install|run it)"):
        variants.find(name)(SIZE)
