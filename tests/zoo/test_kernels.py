"""Kernels and the short convolution equal their definitions, and loops of threads."""

import threading
from unittest.mock import Mock

import pytest
import torch
from torch.nn import functional as F

from tests.zoo.oracle import FORMS, agree, gradients, qkv
from zoo import projection
from zoo.kernels import causal_sum, collisions, eager, threads
from zoo.kernels.collisions import Form, tiled
from zoo.kernels.rotary import apply_rotary


def sides(n: int, dtype=torch.float64) -> list[torch.Tensor]:
    return [torch.randn(2, 3, n, width, dtype=dtype).requires_grad_() for width in (5, 5, 4)]


@pytest.mark.parametrize("n", [1, 100])
def test_sums_after_a_state_and_all_gradients_are_those_of_every_device(n, monkeypatch):
    leaves = [*sides(n), torch.randn(2, 3, 5, 4).double().requires_grad_()]
    slopes = torch.randn(2, 3, n, 4).double(), torch.randn(2, 3, 5, 4).double()
    found = []
    for on_cpu in (True, False):
        monkeypatch.setattr(eager, "on_cpu", lambda x, on_cpu=on_cpu: on_cpu)
        out = causal_sum.total_after(*leaves, 32)
        found.append((*out, *torch.autograd.grad(out, leaves, slopes)))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-11)


def test_zero_by_zero_and_an_underflowing_denominator_give_zero():
    inputs = [torch.zeros(1, 1, 3, width, requires_grad=True) for width in (2, 2, 4)]
    out = causal_sum.mean(*inputs, False, 8)
    assert (out == 0).all()
    assert all((gradient == 0).all() for gradient in gradients(out, *inputs))
    denominator = torch.tensor([1e-40, 1e-33, 1e-25]).reshape(1, 1, 3, 1)
    out = causal_sum.ratio(torch.ones(1, 1, 3, 2), denominator)
    assert (out[:, :, :2] == 0).all()
    torch.testing.assert_close(out[:, :, 2], torch.full((1, 1, 2), 1e25))


@FORMS
@pytest.mark.parametrize(("n", "tau", "bound"), [
    (1, 8, False), (63, 1, True), (63, 8, True), (100, 1, False), (100, 2, True), (100, 3, False),
])  # fmt: skip
def test_tiles_equal_the_definition(n, tau, bound, causal, monkeypatch):
    # Seven queries a tile at n = 100, and the last one smaller.
    monkeypatch.setattr(collisions, "TILE", 700)
    q, k, v = (part.detach() for part in qkv(n))
    units = (F.normalize(part, dim=-1) for part in (q, k))
    inputs = [part.requires_grad_() for part in (*units, v)]
    form, saved = Form(causal, tau, bound), []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        out = tiled(*inputs, form)
    # No matrix of weights is stored.
    assert max(part.numel() for part in saved) == inputs[0].numel()
    agree(out, collisions.plain(*inputs, form), *inputs)


@pytest.mark.parametrize(("n", "taps", "before"), [(1, 4, 3), (4, 5, 2), (17, 16, 8), (9, 3, 0)])
def test_the_sum_of_shifted_tokens_is_the_convolution(n, taps, before):
    u = torch.randn(2, n, 6, dtype=torch.float64, requires_grad=True)
    kernel = torch.randn(taps, 6, dtype=torch.float64, requires_grad=True)
    padded = F.pad(u.mT, (before, taps - 1 - before))
    expected = F.conv1d(padded, kernel.mT[:, None], groups=6).mT
    agree(projection.convolve(u, kernel, before, None), expected, u, kernel)
    again = lambda *of: projection.convolve(*of, before, None)  # noqa: E731
    assert torch.autograd.gradgradcheck(again, (u, kernel), fast_mode=True)


def test_a_late_position_is_rotated_exactly_in_fp32():
    x, position = torch.randn(1, 1, 1, 7), torch.tensor([[1_000_000]])
    exact = apply_rotary(x.double(), position)
    torch.testing.assert_close(apply_rotary(x, position).double(), exact, rtol=0, atol=1e-5)


@pytest.fixture(params=["openmp", "pool"])
def team(request, monkeypatch):
    if request.param == "pool":
        monkeypatch.setattr(threads, "_openmp", lambda: None)
    elif threads._openmp() is None:
        pytest.skip("PyTorch is not built on GNU OpenMP here")


@pytest.mark.parametrize(
    ("count", "blocks"), [(1, 7), (2, 0), (2, 1), (2, 7), (3, 64), (5, 7), (5, 64)]
)
def test_every_block_is_processed_once(team, set_threads, count, blocks):
    set_threads(count)
    done, ranges = [], []

    def loop(factor: int, first: int, last: int) -> None:
        ranges.append((first, last))
        done.extend(factor * block for block in range(first, last))

    threads.share(loop, blocks, 4, 10)
    assert sorted(done) == [10 * block for block in range(blocks)]
    assert len(ranges) == max(1, min(count, blocks // 4))


def test_parts_are_processed_at_the_same_time(team, set_threads):
    set_threads(2)
    both, idents = threading.Barrier(2, timeout=300), []
    # Passed only if two threads wait at once.
    threads.share(lambda *_: (both.wait(), idents.append(threading.get_ident())), 8, 1)
    assert len(set(idents)) == 2


@pytest.mark.parametrize("bad", [0, 4])
def test_an_error_of_any_thread_is_raised(team, set_threads, bad):
    set_threads(2)
    with pytest.raises(ZeroDivisionError):
        threads.share(lambda first, last: 1 / (first - bad), 8, 1)


def test_the_pool_is_used_without_gnu_openmp_and_a_smaller_team_processes_every_part(
    set_threads, monkeypatch
):
    for error in (OSError, TypeError, AttributeError):
        monkeypatch.setattr(threads.ctypes, "CDLL", Mock(side_effect=error))
        assert threads._openmp.__wrapped__() is None
    monkeypatch.setattr(threads, "_openmp", lambda: lambda body, data, *_: body(data))
    set_threads(4)
    ranges = []
    threads.share(lambda first, last: ranges.append((first, last)), 8, 1)
    assert ranges == [(0, 2), (2, 4), (4, 6), (6, 8)]
