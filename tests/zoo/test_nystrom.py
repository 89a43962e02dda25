"""Nyström attention against a loop over its formula, exact softmax, and the published package."""

import pytest
import torch

from tests.zoo.oracle import HEADS, PADDED, WIDTH, agree, qkv, ragged, softmax_attention, valid
from zoo.contract import Size
from zoo.variants.nystrom import Nystrom, pseudo_inverse


def nystrom(**options) -> Nystrom:
    size = Size(dim=HEADS * WIDTH, heads=HEADS, max_len=1000, causal=False, dropout=0.0)
    return Nystrom(size, **options).double()


def by_the_formula(q, k, v, mask, landmarks, iterations):
    """One sample and head at a time, with padded tokens removed; zero at padded tokens."""
    out = torch.zeros_like(q)
    for b in range(q.shape[0]):
        real = torch.arange(q.shape[2]) if mask is None else mask[b].nonzero()[:, 0]
        for h in range(q.shape[1] if len(real) else 0):
            parts = (part[b, h, real] for part in (q, k, v))
            out[b, h, real] = without_padding(*parts, landmarks, iterations)
    return out


def without_padding(q, k, v, landmarks, iterations):
    q, count = q / q.shape[1] ** 0.5, len(q)
    segments = [[r for r in range(count) if r * landmarks // count == s] for s in range(landmarks)]
    q_marks, k_marks = (torch.stack([x[s].mean(0) for s in segments if s]) for x in (q, k))
    a = (q_marks @ k_marks.T).softmax(1)
    z = a.T / (a.sum(0).max() * a.sum(1).max())
    one = torch.eye(len(a), dtype=a.dtype)
    for _ in range(iterations):
        z = 0.25 * z @ (13 * one - a @ z @ (15 * one - a @ z @ (7 * one - a @ z)))
    return (q @ k_marks.T).softmax(1) @ z @ (q_marks @ k.T).softmax(1) @ v


@PADDED
@pytest.mark.parametrize("n", [1, 15, 16, 17, 100])
def test_output_and_gradients_are_those_of_the_formula(n, padded):
    inputs, mask = qkv(n), ragged(n) if padded else None
    out = valid(nystrom(landmarks=16).attend(*inputs, mask), mask)
    expected = by_the_formula(*inputs, mask, 16, 6)
    agree(out, expected, *inputs, outputs=(1e-9, 1e-11), slopes=(1e-8, 1e-10))


@PADDED
@pytest.mark.parametrize("n", [1, 15, 16, 17, 100])
def test_the_convolution_adds_neighbouring_values_as_if_none_were_padded_between(n, padded):
    layer, inputs, mask = nystrom(landmarks=16, conv=5), qkv(n), ragged(n) if padded else None
    out = valid(layer.attend(*inputs, mask), mask)
    kernel = dict(layer.named_parameters())["conv.weight"]
    local = torch.zeros_like(out)
    for b, sample in enumerate(inputs[2]):
        real = torch.arange(n) if mask is None else mask[b].nonzero()[:, 0]
        wider = torch.nn.functional.pad(sample[:, real], (0, 0, 2, 2))
        taps = [kernel[:, 0, tap, :, None] * wider[:, tap : tap + len(real)] for tap in range(5)]
        local[b, :, real] = sum(taps)
    expected = by_the_formula(*inputs, mask, 16, 6) + local
    agree(out, expected, *inputs, kernel, outputs=(1e-9, 1e-11), slopes=(1e-8, 1e-10))


@PADDED
@pytest.mark.parametrize("landmarks", [63, 64, 100])
def test_a_landmark_for_every_token_gives_exact_softmax(landmarks, padded):
    inputs, mask = qkv(63), ragged(63) if padded else None
    out = nystrom(landmarks=landmarks, iterations=40).attend(*inputs, mask)
    expected = softmax_attention(*inputs, mask)
    torch.testing.assert_close(valid(out, mask), valid(expected, mask), rtol=0, atol=1e-8)


def test_more_iterations_are_closer_to_exact_softmax():
    inputs = [part.detach() for part in qkv(32)]
    exact = softmax_attention(*inputs)
    layers = [nystrom(landmarks=32, iterations=count) for count in (4, 8, 12, 16)]
    errors = [float((x.attend(*inputs, None) - exact).norm() / exact.norm()) for x in layers]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.01 * errors[0]


def test_more_landmarks_are_closer_to_exact_softmax_on_smooth_inputs():
    time = torch.linspace(0, 1, 512).double()
    waves = torch.arange(1, 5) * torch.rand(3, 2, HEADS, WIDTH, 4).double()
    inputs = 1.5 * torch.sin(2 * waves[..., None] * time).sum(-2).mT
    exact = softmax_attention(*inputs)
    layers = [nystrom(landmarks=count, iterations=20) for count in (8, 16, 32, 64)]
    errors = [float((x.attend(*inputs, None) - exact).norm() / exact.norm()) for x in layers]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.1 * errors[0]


def test_the_iteration_converges_to_the_moore_penrose_inverse():
    a = torch.randn(2, 3, 12, 12).double().softmax(-1)
    torch.testing.assert_close(pseudo_inverse(a, 40), torch.linalg.pinv(a), rtol=0, atol=1e-8)


def test_heads_are_independent():
    layer, inputs = nystrom(landmarks=8), qkv(40)
    scaled = [torch.cat([part[:, :1], 1e3 * part[:, 1:]], 1) for part in inputs]
    before, after = layer.attend(*inputs, None), layer.attend(*scaled, None)
    torch.testing.assert_close(before[:, 0], after[:, 0], rtol=1e-12, atol=0)


def test_the_published_package_agrees_on_one_sample_and_head():
    package = pytest.importorskip("nystrom_attention")
    theirs = package.NystromAttention(
        dim=WIDTH, dim_head=WIDTH, heads=1, num_landmarks=16, residual=False
    ).double()
    theirs.to_qkv = theirs.to_out = torch.nn.Identity()
    q, k, v = (part[:1, :1] for part in qkv(64))
    expected = theirs(torch.cat([q, k, v], -1)[:, 0])
    out = nystrom(landmarks=16).attend(*(part.expand(2, 2, -1, -1) for part in (q, k, v)), None)
    torch.testing.assert_close(out[1, 1], expected[0], rtol=1e-9, atol=1e-11)
