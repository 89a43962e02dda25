"""Packages: variants that agree with them, variants that wrap them, and what these need."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch

from tests.zoo.oracle import create
from zoo.contract import Size, Unsupported
from zoo.kernels.real_tokens import zero_padding
from zoo.variants import fla, variants

PACKAGES = {
    "performer-lib": ("performer-pytorch", "performer_pytorch"),
    "nystrom-lib": ("nystrom-attention", "nystrom_attention"),
    "reformer-lib": ("reformer-pytorch", "reformer_pytorch"),
}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_package_is_named_with_the_remedy(name, monkeypatch):
    package, module = PACKAGES[name]
    for imported in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, imported)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Unsupported, match=f"{name} needs {package}, .*pip install {package}$"):
        create(name)


FLA_SIZE = Size(dim=8, heads=2, max_len=300, causal=False, dropout=0.0)
FLA_MASK = torch.arange(9) < torch.tensor([9, 6])[:, None]
FLA_LAYERS = [name for name, variant in variants.items() if issubclass(variant, fla.FlashLinear)]


class Published(torch.nn.Module):
    def __init__(self, hidden_size, num_heads, head_dim=None):
        super().__init__()
        self.arguments = (hidden_size, num_heads, head_dim)

    def forward(self, hidden_states, attention_mask=None):
        self.mask = attention_mask
        return 2 * hidden_states, None, None


@pytest.fixture
def installed(monkeypatch):
    for name in ("fla", "triton", "fla.layers"):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    for name in FLA_LAYERS:
        setattr(sys.modules["fla.layers"], variants.find(name).__name__, Published)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.parametrize("name", FLA_LAYERS)
def test_the_layer_of_the_package_gets_tokens_and_mask(name, installed):
    layer, x = variants.find(name)(FLA_SIZE), torch.randn(2, 9, 8)
    assert torch.equal(layer(x, mask=FLA_MASK).tokens, 2 * zero_padding(x, FLA_MASK))
    assert layer.inner.arguments == (8, 2, 4 if name == "fla-gated-deltanet" else None)
    assert torch.equal(layer.inner.mask, FLA_MASK.int())
    layer(x)
    assert layer.inner.mask is None


MISSING = {
    "fla": "flash-linear-attention is not installed; pip install flash-linear-attention",
    "triton": "triton is not installed; pip install triton",
    "cuda": "its kernels need a CUDA device, and there is none",
}


@pytest.mark.parametrize("missing", MISSING)
def test_a_missing_requirement_is_named(missing, installed, monkeypatch):
    assert fla.missing_requirement() == ""
    if missing == "cuda":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    else:
        monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(Unsupported, match=f"^fla-deltanet cannot run here: {MISSING[missing]}"):
        fla.DeltaNet(FLA_SIZE)
