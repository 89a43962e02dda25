"""The recurrence with decay, erase and write gates: its forms in chunks and on a CPU."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.zoo.formulas import loop
from tests.zoo.oracle import HEADS, agree
from zoo.cost import flops
from zoo.kernels import delta, eager, recurrence

GATES = pytest.mark.parametrize("channels", [False, True], ids=["heads", "channels"])
PATHS = pytest.mark.parametrize("path", ["cpu", "chunked"])


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


@PATHS
@pytest.mark.parametrize(
    ("n", "channels", "erases"),
    [
        (1, False, True),
        (1, True, False),
        (63, True, True),
        (63, False, False),
        (300, False, True),
        (300, True, False),
    ],
)
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


@PATHS
@pytest.mark.parametrize(
    ("strength", "channels"), [(0.0, False), (1.0, True), (30.0, False), (1e3, True), (1e6, True)]
)
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
    assert counted == sum(recurrence.OPERATIONS[6]) * 2 * HEADS * 7 * 6 * 5
