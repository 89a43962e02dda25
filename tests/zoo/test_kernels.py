"""Kernels and the short convolution equal their definitions, and loops of threads."""

import threading

import pytest
import torch
from torch.nn import functional as F

from tests.zoo.oracle import FORMS, agree, complex_rotation, create, gradients, qkv
from zoo import projection
from zoo.contract import Size, Unsupported
from zoo.kernels import causal_sum, collisions, eager, threads
from zoo.kernels.collisions import Form, tiled
from zoo.kernels.depthwise import BLOCK, convolve
from zoo.kernels.rotary import apply_rotary
from zoo.projection import ShortConvolution


def sides(n: int, dtype=torch.float64) -> list[torch.Tensor]:
    return [torch.randn(2, 3, n, width, dtype=dtype).requires_grad_() for width in (5, 5, 4)]


@pytest.mark.parametrize(("n", "chunk"), [
    (1, 64), (63, 1), (63, 64), (64, 64), (65, 64), (65, 7), (200, 64), (200, 2000),
])  # fmt: skip
def test_chunked_sums_and_gradients_are_those_of_the_definition(n, chunk):
    inputs = sides(n)
    out, expected = causal_sum.chunked(*inputs, chunk), causal_sum.plain(*inputs)
    agree(out, expected, *inputs, outputs=(1e-12, 1e-12), slopes=(1e-12, 1e-12))


@pytest.mark.parametrize("n", [1, 63, 100, 1000, 4097])
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


LONG = 2 * BLOCK + 1
BANDS = [(1, 3), (63, 1), (63, 35), (BLOCK, 3), (BLOCK + 1, 3), (BLOCK, LONG), (200, LONG)]


@pytest.mark.parametrize(("n", "taps"), BANDS)
def test_a_band_equals_a_grouped_convolution(n, taps):
    v = torch.randn(2, 3, n, 5, dtype=torch.float64, requires_grad=True)
    kernel = torch.randn(3, taps, dtype=torch.float64, requires_grad=True)
    expected = F.conv2d(v, kernel[:, None, :, None], padding=(taps // 2, 0), groups=3)
    agree(convolve(v, kernel), expected, v, kernel)


@pytest.mark.parametrize("n", [1, 2, 4, 17])
@pytest.mark.parametrize(("taps", "before"), [(4, 3), (5, 2), (16, 8), (3, 0)])
def test_the_sum_of_shifted_tokens_is_the_convolution(n, taps, before):
    u = torch.randn(2, n, 6, dtype=torch.float64, requires_grad=True)
    kernel = torch.randn(taps, 6, dtype=torch.float64, requires_grad=True)
    padded = F.pad(u.mT, (before, taps - 1 - before))
    expected = F.conv1d(padded, kernel.mT[:, None], groups=6).mT
    agree(projection.convolve(u, kernel, before, None), expected, u, kernel)
    again = lambda *of: projection.convolve(*of, before, None)  # noqa: E731
    assert torch.autograd.gradgradcheck(again, (u, kernel), fast_mode=True)


@pytest.mark.parametrize("causal", [True, False])
def test_a_short_convolution_is_the_sum_of_neighbours_and_a_silu(causal):
    size = Size(dim=6, heads=1, max_len=20, causal=causal, dropout=0.0, short_conv=4)
    convolution, u = ShortConvolution(size, 5).double(), torch.randn(2, 9, 5).double()
    # Causal: 4 taps, the last one at the token itself; else 5, the middle one there.
    taps, here = convolution.taps, 3 if causal else 2
    assert taps.shape == (4 if causal else 5, 5)
    for i in range(9):
        reached = [(t, i + t - here) for t in range(len(taps)) if 0 <= i + t - here < 9]
        expected = F.silu(sum(taps[t] * u[:, j] for t, j in reached))
        torch.testing.assert_close(convolution(u)[:, i], expected)


def test_some_channels_have_no_convolution_and_the_others_no_activation():
    size = Size(dim=6, heads=2, max_len=9, causal=True, dropout=0.0, short_conv=4)
    convolution, u = ShortConvolution(size, 5, plain=2, activation=False), torch.randn(2, 9, 5)
    out = convolution(u)
    assert torch.equal(out[..., 3:], u[..., 3:]) and convolution.taps.shape == (4, 3)
    reached = sum(convolution.taps[t] * u[:, 2 + t, :3] for t in range(4))
    torch.testing.assert_close(out[:, 5, :3], reached)


def test_without_taps_a_convolution_is_the_identity_and_with_new_ones_near_it():
    options, u = {"dim": 6, "heads": 1, "max_len": 20, "dropout": 0.0}, torch.randn(2, 9, 5)
    assert ShortConvolution(Size(**options, causal=True), 5)(u) is u
    for causal in (True, False):
        convolution = ShortConvolution(Size(**options, causal=causal, short_conv=4), 5)
        # At most 5 taps, each off by 0.05 at most; the slope of a SiLU is at most 1.1.
        taps = convolution.taps.detach()
        assert (convolution(u) - F.silu(u)).abs().max() < 1.1 * 5 * 0.05 * u.abs().max()
        assert taps.unique().numel() == taps.numel()


@pytest.mark.parametrize("name", ["softmax", "primal", "primal-moments"])
def test_cross_attention_has_no_short_convolution(name):
    layer = create(name, dim=16, max_len=64, short_conv=4)
    with pytest.raises(Unsupported, match="with short_conv=4 attends to its input only"):
        layer(*torch.randn(2, 2, 9, 16).double())


@pytest.mark.parametrize("width", [8, 7, 1])
def test_pairs_of_channels_rotate_as_complex_numbers(width):
    x = torch.randn(2, 3, 11, width).double()
    torch.testing.assert_close(apply_rotary(x), complex_rotation(x), rtol=0, atol=1e-12)
    x, position = x[:1, :1, :1].float(), torch.tensor([[1_000_000]])
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
    both = threading.Barrier(2, timeout=300)
    idents = []

    def loop(first: int, last: int) -> None:
        # Passed only if two threads wait here at once.
        both.wait()
        idents.append(threading.get_ident())

    threads.share(loop, 8, 1)
    assert len(set(idents)) == 2


@pytest.mark.parametrize("bad", [0, 4])
def test_an_error_of_any_thread_is_raised(team, set_threads, bad):
    set_threads(2)
    with pytest.raises(ZeroDivisionError):
        threads.share(lambda first, last: 1 / (first - bad), 8, 1)


@pytest.mark.parametrize("error", [OSError, TypeError, AttributeError])
def test_the_pool_is_used_without_gnu_openmp_and_a_smaller_team_processes_every_part(
    error, set_threads, monkeypatch
):
    def refuse(_):
        raise error

    monkeypatch.setattr(threads.ctypes, "CDLL", refuse)
    assert threads._openmp.__wrapped__() is None
    monkeypatch.setattr(threads, "_openmp", lambda: lambda body, data, *_: body(data))
    set_threads(4)
    ranges = []
    threads.share(lambda first, last: ranges.append((first, last)), 8, 1)
    assert ranges == [(0, 2), (2, 4), (4, 6), (6, 8)]
