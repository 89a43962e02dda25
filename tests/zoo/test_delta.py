"""The recurrence with decay, erase and write gates, and the variants that are made of it.

Every formula here is a loop over tokens in double precision; independent implementations are those
of the package transformers, which compute in fp32.
"""

import importlib.util
from functools import partial
from importlib import import_module

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import zoo
from tests.zoo.oracle import DIM, HEADS, PADDED, WIDTH, agree, by_sample, draw, ragged, valid
from zoo.cost import flops
from zoo.kernels import delta, delta_cpu, eager
from zoo.variants import variants

GATES = pytest.mark.parametrize("channels", [False, True], ids=["heads", "channels"])
LENGTHS = pytest.mark.parametrize("n", [1, 63, 100, pytest.param(1000, marks=pytest.mark.slow)])
PATHS = pytest.mark.parametrize("path", ["cpu", "chunked"])


def loop(q, k, v, log_decay, erase=None, write=None) -> Tensor:
    """The definition of `zoo.kernels.delta`, one token after the other."""
    state, outputs = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1]), []
    for i in range(q.shape[2]):
        g = log_decay[:, :, i if log_decay.shape[2] > 1 else 0]
        state = g.exp()[..., None] * state
        new = v[:, :, i] if write is None else write[:, :, i] * v[:, :, i]
        if erase is not None:
            new = new - torch.einsum("bhe,bhef->bhf", erase[:, :, i] * k[:, :, i], state)
        state = state + torch.einsum("bhe,bhf->bhef", k[:, :, i], new)
        outputs.append(torch.einsum("bhe,bhef->bhf", q[:, :, i], state))
    return torch.stack(outputs, 2)


def inputs(n: int, channels: bool, *, strength: float = 1.0, dtype=torch.float64) -> list[Tensor]:
    """Keys of length 1 with positive channels, gates up to 2, decays near 0 and near 1."""
    q, k = torch.randn(2, HEADS, n, 6), F.silu(torch.randn(2, HEADS, n, 6))
    v, key, value = torch.randn(2, HEADS, n, 5), 6 if channels else 1, 5 if channels else 1
    closed = (torch.arange(n) % 3 == 0)[:, None] * torch.rand(2, HEADS, n, key)
    decay = -strength * closed - 0.01 * torch.rand(2, HEADS, n, key)
    gates = 2 * torch.rand(2, HEADS, n, key), torch.rand(2, HEADS, n, value)
    parts = q, F.normalize(k.double(), dim=-1), v, decay, *gates
    return [part.to(dtype).requires_grad_() for part in parts]


@pytest.fixture
def on_path(path, monkeypatch):
    if path == "chunked":
        monkeypatch.setattr(eager, "on_cpu", lambda x: False)


@LENGTHS
@GATES
@PATHS
@pytest.mark.parametrize("erases", [True, False], ids=["erases", "writes"])
def test_outputs_and_gradients_are_those_of_the_definition(n, channels, path, erases, on_path):
    parts = inputs(n, channels)
    parts = parts if erases else parts[:4]
    rest = () if erases else (None, None)
    out = delta.attend(*parts, *rest)
    # The gradient of the decay of a single token is 0.
    agree(out, loop(*parts), *parts[: 3 if n == 1 else 6],
          outputs=(1e-12, 1e-12), slopes=(1e-11, 1e-12))  # fmt: skip


@GATES
@PATHS
def test_a_token_without_key_and_decay_leaves_no_trace(channels, path, on_path):
    parts, real = inputs(70, channels), torch.arange(70) % 4 != 1
    real &= torch.arange(70) > 2
    padded = list(parts)
    padded[1], padded[3] = (torch.where(real[:, None], parts[i], 0.0) for i in (1, 3))
    expected = delta.attend(*(part[:, :, real] for part in parts))
    torch.testing.assert_close(delta.attend(*padded)[:, :, real], expected, rtol=1e-12, atol=1e-12)


@GATES
@PATHS
@pytest.mark.parametrize("strength", [0.0, 1.0, 30.0, 1e3, 1e6])
def test_gates_of_any_strength_are_exact_in_fp32(strength, channels, path, on_path):
    parts = inputs(300, channels, strength=strength, dtype=torch.float32)
    exact = [part.detach().double().requires_grad_() for part in parts]
    out, expected = delta.attend(*parts), loop(*exact)
    assert (out - expected).abs().max() < 5e-5 * expected.abs().max()
    weights = torch.randn_like(out)
    slopes = torch.autograd.grad((out * weights).sum(), parts)
    for one, other in zip(
        slopes, torch.autograd.grad((expected * weights).sum(), exact), strict=True
    ):
        assert (one - other).norm() < 1e-4 * other.norm()


@GATES
def test_gradients_can_be_differentiated_again(channels):
    assert torch.autograd.gradgradcheck(delta.attend, inputs(4, channels), fast_mode=True)


def test_a_value_is_read_as_it_was_written():
    q, k, v, *_ = inputs(9, False)
    ones, zeros = torch.ones(2, HEADS, 9, 1).double(), torch.zeros(2, HEADS, 9, 1).double()
    torch.testing.assert_close(delta.attend(k, k, v, zeros, ones, ones), v)
    # A gate of 2 reflects the state: its norm stays.
    state = torch.randn(2, HEADS, 6, 5).double()
    token = (part[:, :, :1] for part in (q, k, v, zeros, 2 * ones, zeros))
    torch.testing.assert_close(delta.step(*token, state)[1].norm(), state.norm())


def test_its_operations_are_counted():
    q, k, v, *gates = inputs(7, True)
    counted = flops(lambda: delta.attend(q, k, v, *gates).sum().backward())
    assert counted == (delta_cpu.FORWARD + delta_cpu.BACKWARD) * 2 * HEADS * 7 * 6 * 5


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1)).movedim(1, 0)[None]


def unit(x: Tensor) -> Tensor:
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def rate(layer, x) -> Tensor:
    step = (1 + (layer.decay.map(x) + layer.decay.bias).exp()).log()
    return -(layer.decay.log_rate.exp()[:, None, None] * heads(step))


def beta_of(layer, x) -> Tensor:
    return heads((1 + layer.negative) / (1 + (-layer.beta(x)).exp()))


def delta_gates(layer, x):
    return torch.zeros(1, HEADS, 1, 1).double(), beta_of(layer, x), beta_of(layer, x)


def decayed_gates(layer, x):
    return rate(layer, x), beta_of(layer, x), beta_of(layer, x)


def channel_gates(layer, x):
    erase = heads((1 + layer.negative) * layer.erase(x).sigmoid())
    return rate(layer, x), erase, heads(layer.write(x).sigmoid())


def delta_formula(gates, layer, x):
    """The real tokens of a sample, (n, d)."""
    q, k, v = (heads(part) for part in F.silu(layer.query_key_value(x)).chunk(3, -1))
    y = loop(unit(q) / WIDTH**0.5, unit(k), v, *gates(layer, x))[0].transpose(0, 1)
    y = y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.norm.weight
    return layer.out(y.flatten(1) * (1 if layer.gate is None else layer.gate(x)))


def rms(layer, y):
    return layer.out(y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.norm.weight)


def hgrn2_formula(layer, x):
    q, v = (heads(part) for part in layer.query_key_value(x).chunk(2, -1))
    alpha = layer.lower_bound + (1 - layer.lower_bound) * heads(layer.forget(x).sigmoid())
    y = loop(F.silu(q) / WIDTH**0.5, 1 - alpha, v, alpha.log())
    return rms(layer, y[0].transpose(0, 1).flatten(1))


def mamba2_formula(layer, x):
    u, k, q = F.silu(layer.query_key_value(x)).split(layer.widths, -1)
    q, k = (part.expand(1, HEADS, -1, -1) for part in (q, k))
    step = heads((1 + (layer.decay.map(x) + layer.decay.bias).exp()).log())
    y = loop(q, k, step * heads(u), -layer.decay.log_rate.exp()[:, None, None] * step)
    y = y + layer.skip[:, None, None] * heads(u)
    return rms(layer, y[0].transpose(0, 1).flatten(1) * F.silu(layer.gate(x)))


FORMULAS = [
    ("delta", {}, partial(delta_formula, delta_gates)),
    ("delta", {"negative": True, "gate": "silu"}, partial(delta_formula, delta_gates)),
    ("gated-delta", {"negative": True}, partial(delta_formula, decayed_gates)),
    ("kda", {}, partial(delta_formula, decayed_gates)),
    ("gdn2", {"negative": True}, partial(delta_formula, channel_gates)),
    ("hgrn2", {"lower_bound": 0.3}, hgrn2_formula),
    ("mamba2", {"state": 6}, mamba2_formula),
]


@PADDED
@pytest.mark.parametrize("n", [1, 63, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "options", "formula"), FORMULAS, ids=lambda x: str(x)[:20])
def test_a_variant_is_its_formula(name, options, formula, n, padded):
    layer = create(name, **options)
    for parameter in layer.norm.parameters():
        torch.nn.init.normal_(parameter)
    x, mask = draw(n), ragged(n) if padded else None
    out = valid(layer(x, x, mask).tokens, mask)
    expected = by_sample(partial(formula, layer), x, mask)
    leaves = [x, *layer.parameters()] if n > 1 else [x]
    agree(out, expected, *leaves, outputs=(1e-11, 1e-12), slopes=(1e-9, 1e-11))


def create(name, **options):
    return zoo.create(name, dim=DIM, heads=HEADS, max_len=1000, causal=True, **options).double()


def test_two_steps_are_two_tokens_of_which_the_second_reads():
    layer, x = create("delta", steps=2, negative=True), draw(30)
    parts = layer.inputs(x, layer.query_key_value(x), None)
    y = loop(*parts)[:, :, 1::2]
    torch.testing.assert_close(layer(x).tokens, layer.merge(x, y))
    assert parts.k.shape[2] == 60 and not torch.equal(parts.k[:, :, ::2], parts.k[:, :, 1::2])


@pytest.mark.parametrize(
    ("name", "least", "median"), [("gated-delta", 0.3, 0.94), ("kda", 0.3, 0.93)]
)
def test_a_fresh_layer_remembers(name, least, median):
    layer = zoo.create(name, dim=512, heads=256, max_len=9, causal=True)
    alpha = layer.decay(torch.zeros(1, 1, 512))[0].detach().exp()
    assert alpha.median().item() == pytest.approx(median, abs=0.02)
    assert least < alpha.quantile(0.05) < 0.6 and 0.98 < alpha.quantile(0.95) < 1


@pytest.fixture
def oracle_of(monkeypatch):
    """The module of a model of the package transformers, imported without torchvision."""
    find = importlib.util.find_spec

    def without(name: str, *package: str):
        return None if name == "torchvision" else find(name, *package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    pytest.importorskip("transformers")
    return lambda name: import_module(f"transformers.models.{name}.modeling_{name}")


def test_the_oracles_of_transformers_agree(oracle_of):
    qwen3, kimi = oracle_of("qwen3_next"), oracle_of("kimi_linear")
    for n, channels, oracle in (
        (63, False, qwen3.torch_chunk_gated_delta_rule),
        (100, False, qwen3.torch_chunk_gated_delta_rule),
        (100, True, kimi.chunk_kimi_delta_attention),
    ):
        q, k, v, decay, beta, _ = inputs(n, channels, dtype=torch.float32)
        beta = beta[..., :1]
        parts = [part.detach().requires_grad_() for part in (q, k, v, decay, beta)]
        mine = delta.attend(parts[0] * 6**-0.5, *parts[1:4], parts[4], parts[4])
        by_token = [part.transpose(1, 2) for part in parts]
        g, b = (by_token[i] if channels and i == 3 else by_token[i][..., 0] for i in (3, 4))
        theirs = oracle(*by_token[:3], g=g, beta=b)[0].transpose(1, 2)
        agree(mine, theirs, *parts, outputs=(1e-5, 2e-6), slopes=(1e-4, 2e-4))


def test_the_oracle_of_mamba2_agrees(oracle_of):
    mamba2 = oracle_of("mamba2")
    layer, n = create("mamba2", state=6).float(), 100
    x = torch.randn(2, n, DIM)
    u, k, q = F.silu(layer.query_key_value(x)).split(layer.widths, -1)
    theirs = mamba2.mamba2_chunk_scan(
        u.unflatten(-1, (HEADS, -1)), layer.decay.map(x), -layer.decay.log_rate.exp(),
        k[:, :, None], q[:, :, None], chunk_size=32, D=layer.skip, dt_bias=layer.decay.bias,
        dt_softplus=True,
    )  # fmt: skip
    theirs = theirs[0] if isinstance(theirs, tuple) else theirs
    y = theirs.reshape(2, n, -1) * F.silu(layer.gate(x))
    torch.testing.assert_close(layer(x).tokens, layer.out(layer.norm(y)), rtol=1e-4, atol=2e-6)


def test_the_family_is_registered():
    family = {"delta", "gated-delta", "kda", "gdn2"}
    assert family <= set(zoo.names(bidirectional=False, recurrent=True))
    assert all(variants.find(name).identities for name in family)
