"""Recurrences token by token, in chunks and with gates, and decoding with a cache."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import zoo
from tests.zoo.formulas import loop
from tests.zoo.oracle import DIM, HEADS, decode, gradients
from zoo.composition import Composition, build
from zoo.cost import flops, state_bytes
from zoo.kernels import delta, eager, recurrence
from zoo.kernels.key_value_cache import RECENT
from zoo.kernels.recurrence import token_sums
from zoo.variants import variants


def inputs(n, width=5, dtype=torch.float64):
    q, k, v = (torch.randn(2, 3, n, width, dtype=dtype) for _ in range(3))
    strength = torch.tensor([0.01, 1.0, 50.0])[:, None, None]
    log_decay = -torch.rand(2, 3, n, width, dtype=dtype) * strength
    return [x.requires_grad_() for x in (q, k, v, log_decay.to(dtype))]


def attend(q, k, v, log_decay, erase=None, write=None):
    return delta.attend(q, k, v, log_decay, None if erase is None else erase * k, write)


def test_a_head_is_the_same_on_any_number_of_threads(set_threads):
    leaves, results = inputs(40, dtype=torch.float32), []
    for threads in (1, 4):
        set_threads(threads)
        out = token_sums(fail, False, *leaves)
        results.append([out, *gradients(out, *leaves)])
    assert all(map(torch.equal, *results))


def test_half_precision_and_other_devices_take_the_definition(monkeypatch):
    leaves, called = inputs(4, dtype=torch.bfloat16), []
    token_sums(lambda *inputs: called.append(inputs) or inputs[0], True, *leaves)
    monkeypatch.setattr(eager, "on_cpu", lambda x: False)
    token_sums(lambda *inputs: called.append(inputs) or inputs[0], True, *inputs(4))
    assert len(called) == 2 and (torch.float32, torch.float64) == recurrence.DTYPES


def fail(*inputs):
    raise AssertionError("the definition was computed")


def test_operations_are_counted_and_the_backend_is_named():
    leaves, q, k, v, *gates = inputs(7), *gated_inputs(7, True)
    for causal in (True, False):
        counted = flops(lambda causal=causal: token_sums(fail, causal, *leaves).sum().backward())
        # 2 samples, 3 heads, 7 tokens of width 5: two products forward, and five backward.
        assert counted == 2 * 3 * 7 * 2 * 5**2 * (2 + 5) * (1 if causal else 2)
    counted = flops(lambda: attend(q, k, v, *gates).sum().backward())
    assert counted == sum(recurrence.OPERATIONS[6]) * 2 * HEADS * 7 * 6 * 5
    for name in ("retention", "rwkv7", "mesa"):
        layer = zoo.create(name, dim=8, heads=2, max_len=9, causal=True)
        assert layer.backend_for(torch.empty(1, 9, 8)) == "recurrent"
        assert layer.backend_for(torch.empty(1, 9, 8, device="meta")) == "chunked"


def gated_inputs(
    n: int, channels: bool, *, strength: float = 1.0, dtype=torch.float64
) -> list[Tensor]:
    q, k = torch.randn(2, HEADS, n, 6), F.silu(torch.randn(2, HEADS, n, 6))
    v, key, value = torch.randn(2, HEADS, n, 5), 6 if channels else 1, 5 if channels else 1
    closed = (torch.arange(n) % 3 == 0)[:, None] * torch.rand(2, HEADS, n, key)
    decay = -strength * closed - 0.01 * torch.rand(2, HEADS, n, key)
    gates = 2 * torch.rand(2, HEADS, n, key), torch.rand(2, HEADS, n, value)
    leaves = q, F.normalize(k.double(), dim=-1), v, decay, *gates
    return [part.to(dtype).requires_grad_() for part in leaves]


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize(("strength", "channels"), [(1e6, True), (0.0, False), (30.0, False)])
def test_gates_of_any_strength_are_exact_in_fp32(strength, channels, on_cpu, monkeypatch):
    monkeypatch.setattr(eager, "on_cpu", lambda x: on_cpu)
    leaves = gated_inputs(150, channels, strength=strength, dtype=torch.float32)
    exact = [part.detach().double().requires_grad_() for part in leaves]
    out, expected = attend(*leaves), loop(*exact)
    assert (out - expected).abs().max() < 5e-5 * expected.abs().max()
    weights = torch.randn_like(out)
    slopes = torch.autograd.grad((out * weights).sum(), leaves)
    for slope, other in zip(
        slopes, torch.autograd.grad((expected * weights).sum(), exact), strict=True
    ):
        assert (slope - other).norm() < 1e-4 * other.norm()


LENGTH = 2 * RECENT + 7


def tokens(n: int) -> Tensor:
    return torch.randn(2, n, DIM)


def layer_of(name: str, **options) -> zoo.Attention:
    return zoo.create(name, dim=DIM, heads=HEADS, max_len=LENGTH, causal=True, **options)


def test_every_causal_variant_decodes_or_its_published_package_cannot():
    without = {name for name in zoo.names(causal=True) if not variants.find(name).decodes()}
    assert without == {"performer-lib", *(name for name in without if name.startswith("fla-"))}


@pytest.mark.parametrize("name", ["softmax", "yoso"])
def test_a_step_copies_the_newest_tokens_alone(name):
    layer, x = layer_of(name), tokens(LENGTH)
    state, shared = layer.start(2), 0
    for token in x.unbind(1):
        before, (_, state) = state, layer.step(token, state)
        shared += all(old is new for old, new in zip(before[1:3], state[1:3], strict=True))
    assert shared == LENGTH - 2
    assert state_bytes(state) == 2 * 2 * LENGTH * DIM * 4 + 2 * 2 * 8


def test_the_cache_has_the_dtype_of_autocast():
    layer = layer_of("softmax")
    with torch.autocast("cpu", torch.bfloat16):
        state = layer.start(1)
        _, state = layer.step(torch.randn(1, DIM), state)
    assert {part.dtype for part in state[1:5]} == {torch.bfloat16}
    assert {part.dtype for part in layer.start(1)[1:5]} == {torch.float32}


class Stepwise(zoo.Attention):
    """A plug-in with a growing state, and `step` alone: the mean of the tokens so far."""

    traits = zoo.Traits(causal=True, cross=False, linear=True, stochastic=False, recurrent=True)

    def forward(self, x, context=None, mask=None):
        return zoo.Attended(x)

    def start(self, batch):
        return (self.zero_state(batch, 0, DIM),)

    def step(self, x, state):
        tokens = torch.cat([state[0], x[:, None]], dim=1)
        return tokens.mean(1), (tokens,)


def test_a_prompt_is_taken_step_by_step_without_an_own_way():
    layer, x = Stepwise(zoo.Size(dim=DIM, heads=1, max_len=9, causal=True, dropout=0.0)), tokens(9)
    actual, state = layer.prefill(x[:, :6])
    torch.testing.assert_close(actual, decode(layer, x)[0][:, :6])
    torch.testing.assert_close(layer.step(x[:, 6], state)[0], decode(layer, x)[0][:, 6])
    with pytest.raises(zoo.Unsupported, match="state that grows"):
        layer.prefill(x, torch.arange(9).expand(2, 9) > 3)


def test_layers_of_a_composition_decode():
    size = zoo.Size(dim=DIM, heads=HEADS, max_len=30, causal=True, dropout=0.0)
    stack = build(Composition.parse("softmax+primal").layers(3), size, {})
    layers = [zoo.EncoderLayer(part, feed_forward=16, dropout=0.5).double() for part in stack]
    expected = actual = prefilled = torch.randn(2, 30, DIM, dtype=torch.float64)
    for layer in layers:  # without dropout, though in training
        prefilled, actual = layer.prefill(prefilled)[0], decode(layer, actual)[0]
        expected = layer.eval()(expected).tokens
    for found in (actual, prefilled):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
