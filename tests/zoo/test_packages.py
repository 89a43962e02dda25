"""Packages: variants that agree with them, variants that wrap them, and what these need."""

import importlib.util
import sys
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch
from torch.nn import functional as F

import zoo
from tests.zoo.oracle import HEADS, WIDTH, agree, create, draw, figures, qkv, ragged
from tests.zoo.test_recurrence import gated_inputs
from zoo.conformance import configurations
from zoo.conformance.tensors import random_tokens
from zoo.contract import Size, Unsupported
from zoo.kernels import delta
from zoo.kernels.real_tokens import zero_padding
from zoo.packages import load
from zoo.variants import fla, variants
from zoo.variants.performer_lib import PerformerLib

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


def test_performer_agrees_with_its_package_without_its_epsilon(performer_pytorch, monkeypatch):
    # Its epsilon of 1e-4 in every feature is a bias that the formula does not have.
    exact = partial(performer_pytorch.softmax_kernel, eps=0.0)
    monkeypatch.setattr(performer_pytorch, "softmax_kernel", exact)
    theirs = performer_pytorch.FastAttention(WIDTH, nb_features=32).double()
    layer, inputs = create("performer", features=32), qkv(63, 63, 0.5)
    layer.projection.copy_(theirs.projection_matrix)
    same(layer.attend(*inputs, None), theirs(*inputs), 1e-9)


def test_nystrom_agrees_on_one_sample_and_head():
    package = pytest.importorskip("nystrom_attention")
    theirs = package.NystromAttention(
        dim=WIDTH, dim_head=WIDTH, heads=1, num_landmarks=16, residual=False
    ).double()
    theirs.to_qkv = theirs.to_out = torch.nn.Identity()
    q, k, v = (part[:1, :1] for part in qkv(64))
    expected = theirs(torch.cat([q, k, v], -1)[:, 0])
    layer = create("nystrom", landmarks=16)
    out = layer.attend(*(part.expand(2, 2, -1, -1) for part in (q, k, v)), None)
    same(out[1, 1], expected[0], 1e-9)


def test_reformer_agrees_where_two_chunks_contain_all_tokens():
    package = pytest.importorskip("reformer_pytorch")
    theirs = package.LSHAttention(bucket_size=32, n_hashes=1, causal=False)
    q, _, v = qkv(64)
    expected, *_ = theirs(q.flatten(0, 1).float(), v.flatten(0, 1).float())
    out = create("reformer", bucket=64).eval().attend(q, q, v, None).flatten(0, 1)
    torch.testing.assert_close(out.float(), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_performer_lib_is_the_layer_of_its_package(causal, performer_pytorch):
    ours = create("performer-lib", causal=causal, features=16)
    theirs = performer_pytorch.SelfAttention(
        8, heads=HEADS, dim_head=WIDTH, nb_features=16, causal=causal, qkv_bias=True
    ).double()
    theirs.fast_attention.load_state_dict(ours.inner.state_dict())
    theirs.to_q, theirs.to_out = ours.query, ours.out
    key, value = ours.context.weight.chunk(2)
    for layer, weight, bias in zip(
        (theirs.to_k, theirs.to_v), (key, value), ours.context.bias.chunk(2), strict=True
    ):
        layer.weight.data, layer.bias.data = weight.data, bias.data
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


def test_the_derivatives_of_performer_lib_have_the_error_that_it_states():
    (configuration, _) = configurations("performer-lib", PerformerLib)
    layer, mask = configuration.layer(max_len=8, dim=4).eval(), torch.ones(2, 6, dtype=torch.bool)
    mask[1, 4:] = False
    # Five times as large as in the check.
    x = 5 * 0.7 * random_tokens(2, 6, dim=4)

    def real(tokens):
        return layer(tokens, tokens, mask).tokens[mask].flatten()

    claimed = torch.autograd.functional.jacobian(real, x).flatten(1)
    nudges = 1e-6 * torch.eye(x.numel()).double().unflatten(1, x.shape)
    with torch.no_grad():
        actual = torch.stack([(real(x + d) - real(x - d)) / 2e-6 for d in nudges], dim=1)
    wrong = ((claimed - actual).norm() / actual.norm()).item()
    errors = figures(layer.expected_failures["gradients"])
    assert any(wrong == pytest.approx(stated, rel=0.1) for stated in errors)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_package_is_named_with_the_remedy(name, monkeypatch):
    package, module = PACKAGES[name]
    for imported in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, imported)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Unsupported, match=f"{name} needs {package}, .*pip install {package}$"):
        create(name)


def test_a_causal_performer_prints_nothing_about_its_missing_kernel(capsys):
    create("performer-lib", causal=True)
    assert capsys.readouterr().out == ""


@pytest.fixture
def oracle_of(monkeypatch):
    """The module of a model of the package transformers, imported without torchvision."""
    find = importlib.util.find_spec

    def without(name: str, *package: str):
        return None if name == "torchvision" else find(name, *package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    pytest.importorskip("transformers")
    return lambda name: import_module(f"transformers.models.{name}.modeling_{name}")


@pytest.mark.slow
def test_the_delta_rules_of_transformers_agree(oracle_of):
    """They compute in fp32: measured differences are 1e-6 of outputs, 1e-4 of gradients."""
    qwen3, kimi = oracle_of("qwen3_next"), oracle_of("kimi_linear")
    for n, channels, oracle in (
        (63, False, qwen3.torch_chunk_gated_delta_rule),
        (100, False, qwen3.torch_chunk_gated_delta_rule),
        (100, True, kimi.chunk_kimi_delta_attention),
    ):
        q, k, v, decay, beta, _ = gated_inputs(n, channels, dtype=torch.float32)
        beta = beta[..., :1]
        leaves = [x.detach().requires_grad_() for x in (q, k, v, decay, beta)]
        mine = delta.attend(leaves[0] * 6**-0.5, *leaves[1:4], leaves[4], leaves[4])
        by_token = [x.transpose(1, 2) for x in leaves]
        g, b = (by_token[i] if channels and i == 3 else by_token[i][..., 0] for i in (3, 4))
        theirs = oracle(*by_token[:3], g=g, beta=b)[0].transpose(1, 2)
        agree(mine, theirs, *leaves, outputs=(1e-5, 2e-6), slopes=(1e-4, 2e-4))


def test_the_scan_of_mamba2_of_transformers_agrees(oracle_of):
    layer, n = create("mamba2", causal=True, state=6).float(), 100
    x = draw(n).float()
    u, k, q = F.silu(layer.query_key_value(x)).split(layer.widths, -1)
    theirs = oracle_of("mamba2").mamba2_chunk_scan(
        u.unflatten(-1, (HEADS, -1)), layer.decay.map(x), -layer.decay.log_rate.exp(),
        k[:, :, None], q[:, :, None], chunk_size=32, D=layer.skip, dt_bias=layer.decay.bias,
        dt_softplus=True,
    )  # fmt: skip
    theirs = theirs[0] if isinstance(theirs, tuple) else theirs
    y = theirs.reshape(2, n, -1) * F.silu(layer.gate(x))
    torch.testing.assert_close(layer(x).tokens, layer.out(layer.norm(y)), rtol=1e-4, atol=2e-6)


FLA_SIZE = Size(dim=8, heads=2, max_len=300, causal=False, dropout=0.0)
FLA_MASK = torch.arange(9) < torch.tensor([9, 6])[:, None]
FLA_LAYERS = [name for name, variant in variants.items() if issubclass(variant, fla.FlashLinear)]
every_layer = pytest.mark.parametrize("name", FLA_LAYERS)


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


@every_layer
def test_the_layer_of_the_package_gets_tokens_and_mask(name, installed):
    layer, x = variants.find(name)(FLA_SIZE), torch.randn(2, 9, 8)
    assert torch.equal(layer(x, mask=FLA_MASK).tokens, 2 * zero_padding(x, FLA_MASK))
    assert layer.inner.arguments[:2] == (8, 2)
    assert torch.equal(layer.inner.mask, FLA_MASK.int())
    layer(x)
    assert layer.inner.mask is None


def test_the_gated_delta_net_gets_the_width_of_a_head(installed):
    assert fla.GatedDeltaNet(FLA_SIZE).inner.arguments == (8, 2, 4)


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
        fla.DeltaNet(FLA_SIZE)


@pytest.mark.skipif(not fla.missing_requirement(), reason="they can run here")
@every_layer
def test_a_layer_that_cannot_run_is_listed_and_cannot_be_built(name):
    assert name in variants.names()
    with pytest.raises(Unsupported, match=f"^{name} cannot run here: .*; (pip install|run it)"):
        variants.find(name)(FLA_SIZE)
