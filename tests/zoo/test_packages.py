"""Packages: variants that agree with them, variants that wrap them, and what these need."""

import importlib.util
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch
from torch.nn import functional as F

import zoo
from tests.zoo.oracle import HEADS, WIDTH, agree, create, draw, ragged
from tests.zoo.test_recurrence import gated_inputs
from zoo.contract import Size, Unsupported
from zoo.kernels import delta
from zoo.kernels.real_tokens import zero_padding
from zoo.packages import load
from zoo.variants import fla, mlstm, variants

PACKAGES = {
    "performer-lib": ("performer-pytorch", "performer_pytorch"),
    "nystrom-lib": ("nystrom-attention", "nystrom_attention"),
    "reformer-lib": ("reformer-pytorch", "reformer_pytorch"),
}


def same(actual: torch.Tensor, expected: torch.Tensor, bound: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=bound, atol=bound)


def without_bias(layer: zoo.Attention) -> zoo.Attention:
    """The layer; the projections of some packages have no bias."""
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


@pytest.fixture
def oracle_of(transformers):
    """The module of a model of the package transformers."""
    return lambda name: import_module(f"transformers.models.{name}.modeling_{name}")


@pytest.mark.slow
def test_the_delta_rules_of_transformers_agree(oracle_of):
    """They compute in fp32: measured differences are 1e-6 of outputs, 1e-4 of gradients."""
    qwen3, kimi = oracle_of("qwen3_next"), oracle_of("kimi_linear")
    for channels, oracle in (
        (False, qwen3.torch_chunk_gated_delta_rule),
        (True, kimi.chunk_kimi_delta_attention),
    ):
        q, k, v, decay, beta, _ = gated_inputs(100, channels, dtype=torch.float32)
        beta = beta[..., :1]
        leaves = [x.detach().requires_grad_() for x in (q, k, v, decay, beta)]
        mine = delta.attend(leaves[0] * 6**-0.5, *leaves[1:4], leaves[4] * leaves[1], leaves[4])
        by_token = [x.transpose(1, 2) for x in leaves]
        g, b = (by_token[i] if channels and i == 3 else by_token[i][..., 0] for i in (3, 4))
        theirs = oracle(*by_token[:3], g=g, beta=b)[0].transpose(1, 2)
        agree(mine, theirs, *leaves, outputs=(1e-5, 2e-6), slopes=(1e-4, 2e-4))


@pytest.mark.slow
def test_the_scan_of_mamba2_of_transformers_agrees(oracle_of):
    layer, n = create("mamba2", causal=True, state=6).float(), 100
    x = draw(n).float()
    u, k, q = F.silu(layer.query_key_value(x)).split(layer.widths, -1)
    theirs = oracle_of("mamba2").mamba2_chunk_scan(
        u.unflatten(-1, (HEADS, -1)), layer.decay.map(x), -layer.decay.log_rate.exp(),
        k[:, :, None], q[:, :, None], chunk_size=32, D=layer.skip, dt_bias=layer.decay.bias,
        dt_softplus=True,
    )  # fmt: skip
    y = (theirs[0] if isinstance(theirs, tuple) else theirs).reshape(2, n, -1) * F.silu(
        layer.gate(x)
    )
    torch.testing.assert_close(layer(x).tokens, layer.out(layer.norm(y)), rtol=1e-4, atol=2e-6)


@pytest.mark.slow
def test_the_cells_of_xlstm_of_transformers_agree(oracle_of):
    """They compute in fp32, and add 1e-6 to the divisor."""
    theirs, n = oracle_of("xlstm"), 128
    q, k, v = torch.randn(3, 2, HEADS, n, WIDTH)
    i, f = 4 * torch.randn(2, 2, HEADS, n)
    leaves = [x.requires_grad_() for x in (q, k, v, i, f)]
    start = torch.zeros(2, HEADS, WIDTH, WIDTH + 1), torch.zeros(2, HEADS, 1, 1)
    gates = i[..., None], F.logsigmoid(f)[..., None]
    mine = mlstm.memory(q * WIDTH**-0.5, k, v, *gates, *start)[0]
    other = theirs.mlstm_chunkwise_native_autograd(*leaves, chunk_size=32)
    agree(mine, other, *leaves, outputs=(1e-3, 1e-4), slopes=(1e-2, 1e-2))


FLA_SIZE = Size(dim=8, heads=2, max_len=300, causal=False, dropout=0.0)
FLA_MASK = torch.arange(9) < torch.tensor([9, 6])[:, None]
FLA_LAYERS = [name for name, variant in variants.items() if issubclass(variant, fla.FlashLinear)]


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
