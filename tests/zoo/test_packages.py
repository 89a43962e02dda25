"""Packages: variants that agree with them, variants that wrap them, and what these need."""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch

import zoo
from tests.zoo.oracle import HEADS, WIDTH, create, ragged
from zoo.contract import Size, Unsupported
from zoo.kernels.real_tokens import zero_padding
from zoo.packages import load
from zoo.variants import fla, variants

PACKAGES = {
    "performer-lib": ("performer-pytorch", "performer_pytorch"),
    "nystrom-lib": ("nystrom-attention", "nystrom_attention"),
    "reformer-lib": ("reformer-pytorch", "reformer_pytorch"),
}


def same(actual: torch.Tensor, expected: torch.Tensor, bound: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=bound, atol=bound)


def without_bias(layer: zoo.Attention) -> zoo.Attention:
    for name, parameter in layer.named_parameters():
        if name in ("query.bias", "context.bias"):
            torch.nn.init.zeros_(parameter)
    return layer


@pytest.fixture
def performer_pytorch():
    if importlib.util.find_spec("distutils") is None:
        pytest.skip("performer-pytorch needs distutils or setuptools")
    return load("tests", "performer_pytorch", "performer-pytorch").performer_pytorch


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_performer_lib_is_the_layer_of_its_package(causal, performer_pytorch, capsys):
    ours = create("performer-lib", causal=causal, features=16)
    assert capsys.readouterr().out == ""  # nothing about a missing kernel
    theirs = performer_pytorch.SelfAttention(
        8, heads=HEADS, dim_head=WIDTH, nb_features=16, causal=causal, qkv_bias=True
    ).double()
    theirs.fast_attention.load_state_dict(ours.inner.state_dict())
    theirs.to_q, theirs.to_out = ours.query, ours.out
    key, value = ours.context.weight.chunk(2)
    theirs.to_k.weight.data, theirs.to_v.weight.data = key.data, value.data
    theirs.to_k.bias.data, theirs.to_v.bias.data = ours.context.bias.data.chunk(2)
    mask = ragged(63)
    x = zero_padding(torch.randn(2, 63, 8).double(), mask)
    # Without gradients: the package's layer fills its values in place.
    with torch.no_grad():
        same(ours(x, x, mask).tokens, theirs(x, mask=mask))
        same(ours(x, x, None).tokens, theirs(x))


def test_performer_lib_without_its_epsilon_is_performer(performer_pytorch):
    ours, plain = (
        create("performer-lib", features=16, epsilon=1e-30),
        create("performer", features=16),
    )
    plain.load_state_dict(
        {**ours.state_dict(), "projection": ours.inner.projection_matrix}, strict=False
    )
    x = torch.randn(2, 63, 8).double()
    same(ours(x, x).tokens, plain(x, x).tokens)
    usual = create("performer-lib", features=16)
    usual.load_state_dict(ours.state_dict())
    assert not torch.allclose(usual(x, x).tokens, ours(x, x).tokens, atol=1e-6)


@pytest.mark.parametrize("conv", [0, 3])
@pytest.mark.parametrize("n", [64, 100])
def test_nystrom_lib_is_the_layer_of_its_package(n, conv):
    ours = without_bias(create("nystrom-lib", landmarks=16, iterations=4, conv=conv))
    package = load("tests", "nystrom_attention", "nystrom-attention")
    theirs = package.NystromAttention(
        8, dim_head=WIDTH, heads=HEADS, num_landmarks=16, pinv_iterations=4, residual=conv > 0,
        residual_conv_kernel=3,
    ).double()  # fmt: skip
    theirs.to_qkv.weight.data = torch.cat([ours.query.weight, ours.context.weight]).data
    theirs.to_out = ours.out
    if conv:
        theirs.res_conv = ours.inner.res_conv
    x, mask = torch.randn(2, n, 8).double(), ragged(n)
    same(ours(x, x, mask).tokens, theirs(x, mask=mask))
    same(ours(x, x, None).tokens, theirs(x, mask=torch.ones_like(mask)))


@pytest.mark.parametrize("n", [10, 16, 17, 100, 128])
def test_reformer_lib_is_the_layer_of_its_package(n):
    ours = without_bias(create("reformer-lib", bucket=16, hashes=3))
    package = load("tests", "reformer_pytorch", "reformer-pytorch")
    inner = package.LSHSelfAttention(8, heads=HEADS, bucket_size=16, n_hashes=3).double()
    theirs = package.Autopadder(inner)
    inner.toqk, inner.tov, inner.to_out = ours.query, ours.context, ours.out
    x = zero_padding(torch.randn(2, n, 8).double(), ragged(n))
    for mask in (ragged(n), None):
        real = torch.ones(2, n, dtype=torch.bool) if mask is None else mask
        torch.manual_seed(3)
        actual = ours(x, x, mask).tokens[real]
        torch.manual_seed(3)
        same(actual, theirs(x, input_mask=mask)[real])


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
