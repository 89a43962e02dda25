"""SOFT against a loop over its formula, the exact Gaussian kernel, and exact inverses."""

import pytest
import torch

from tests.zoo.oracle import HEADS, PADDED, WIDTH, agree, gradients, ragged, valid
from zoo.contract import Size
from zoo.variants.soft import Soft, gaussian, inverse


def soft(**options) -> Soft:
    size = Size(dim=HEADS * WIDTH, heads=HEADS, max_len=1000, causal=False, dropout=0.0)
    return Soft(size, **options).double()


def qv(n: int, scale: float = 1.0) -> list[torch.Tensor]:
    """Queries, which are the keys too, and values."""
    q, v = torch.randn(2, 2, HEADS, n, WIDTH).double()
    return [(scale * q).requires_grad_(), v.requires_grad_()]


def attend(layer: Soft, q: torch.Tensor, v: torch.Tensor, mask=None) -> torch.Tensor:
    return layer.attend(q, q, v, mask)


def kernel(x, y):
    """The Gaussian kernel from differences of vectors."""
    return torch.exp(-(x[:, None] - y).square().sum(-1) / (2 * x.shape[1] ** 0.5))


def by_the_formula(q, v, mask, landmarks, iterations):
    """One sample and head at a time, with padded tokens removed; zero at padded tokens."""
    out = torch.zeros_like(q)
    for b in range(q.shape[0]):
        real = torch.arange(q.shape[2]) if mask is None else mask[b].nonzero()[:, 0]
        for h in range(q.shape[1] if len(real) else 0):
            parts = (part[b, h, real] for part in (q, v))
            out[b, h, real] = without_padding(*parts, landmarks, iterations)
    return out


def without_padding(q, v, landmarks, iterations):
    count = len(q)
    segments = [[r for r in range(count) if r * landmarks // count == s] for s in range(landmarks)]
    marks = torch.stack([q[s].mean(0) for s in segments if s])
    a, p = kernel(marks, marks), kernel(marks, q)
    z = a / a.sum(1).max() ** 2
    for _ in range(iterations):
        z = 2 * z - z @ a @ z
    return p.T @ z @ p @ v


def exact(q, v, mask=None):
    """Gaussian attention with all n x n weights, none of them approximate."""
    weights = torch.exp(-(q[..., :, None, :] - q[..., None, :, :]).square().sum(-1) / 4)
    return (weights if mask is None else weights * mask[:, None, None, :]) @ v


@PADDED
@pytest.mark.parametrize("n", [1, 15, 16, 17, 100])
def test_output_and_gradients_are_those_of_the_formula(n, padded):
    inputs, mask = qv(n), ragged(n) if padded else None
    out = valid(attend(soft(landmarks=16, iterations=12), *inputs, mask), mask)
    expected = by_the_formula(*inputs, mask, 16, 12)
    agree(out, expected, *inputs, outputs=(1e-9, 1e-9), slopes=(1e-8, 1e-8))


def test_the_kernel_is_that_of_differences_of_vectors():
    x, y = torch.randn(2, 1, 1, 20, WIDTH).double()
    torch.testing.assert_close(gaussian(x, y)[0, 0], kernel(x[0, 0], y[0, 0]))
    assert (gaussian(1e4 * x.float(), 1e4 * x.float()) <= 1).all()


@pytest.mark.parametrize("size", [1, 2, 12])
def test_the_iteration_converges_to_the_inverse(size):
    marks = 2 * torch.randn(2, 3, size, WIDTH).double()
    a = gaussian(marks, marks)
    torch.testing.assert_close(inverse(a, 30), torch.linalg.inv(a), rtol=0, atol=1e-8)


@PADDED
@pytest.mark.parametrize("landmarks", [63, 64, 100])
def test_a_landmark_for_every_token_gives_the_exact_kernel(landmarks, padded):
    inputs, mask = qv(63, 2.0), ragged(63) if padded else None
    out = attend(soft(landmarks=landmarks, iterations=40), *inputs, mask)
    torch.testing.assert_close(
        valid(out, mask), valid(exact(*inputs, mask), mask), rtol=0, atol=1e-7
    )


def test_more_landmarks_are_closer_to_the_exact_kernel_on_smooth_inputs():
    time = torch.linspace(0, 1, 512).double()
    waves = torch.arange(1, 5) * torch.rand(2, 2, HEADS, WIDTH, 4).double()
    q, v = 1.5 * torch.sin(2 * waves[..., None] * time).sum(-2).mT
    layers = [soft(landmarks=count) for count in (2, 4, 8, 16)]
    errors = [float((attend(x, q, v) - exact(q, v)).norm() / exact(q, v).norm()) for x in layers]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.1 * errors[0]


def test_heads_are_independent():
    layer, inputs = soft(landmarks=8), qv(40)
    scaled = [torch.cat([part[:, :1], 1e3 * part[:, 1:]], 1) for part in inputs]
    before, after = attend(layer, *inputs), attend(layer, *scaled)
    torch.testing.assert_close(before[:, 0], after[:, 0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("scale", [0.0, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e6])
def test_fp32_is_close_to_double_at_every_scale(scale):
    inputs = qv(500, scale)
    single = [part.float().detach().requires_grad_() for part in inputs]
    out, expected = attend(soft(), *single), attend(soft(), *inputs)
    assert (out - expected).norm() <= 1e-4 * expected.norm()
    assert all(gradient.isfinite().all() for gradient in gradients(out, *single))
