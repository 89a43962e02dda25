"""FAVOR+ against its formula, exact softmax, and the published package with its epsilon removed."""

import math
from functools import partial

import pytest
import torch

from tests.zoo.oracle import (
    FORMS,
    HEADS,
    LENGTHS,
    PADDED,
    WIDTH,
    agree,
    qkv,
    ragged,
    softmax_attention,
)
from zoo.contract import Size
from zoo.variants.performer import Performer, draw_projection


def performer(causal: bool = False, width: int = WIDTH, **options) -> Performer:
    size = Size(dim=HEADS * width, heads=HEADS, max_len=1000, causal=causal, dropout=0.0)
    return Performer(size, **options).double()


def by_the_formula(q, k, v, mask, w, causal):
    """Random features without stabilisation, with all n x m weights in memory."""

    def phi(x):
        x = x * WIDTH**-0.25
        return (torch.einsum("bhne,fe->bhnf", x, w) - (x * x).sum(-1, keepdim=True) / 2).exp()

    weights = torch.einsum("bhnf,bhmf->bhnm", phi(q), phi(k)) / len(w)
    if mask is not None:
        weights = weights * mask[:, None, None, :]
    if causal:
        weights = weights * torch.ones(weights.shape[-2:]).tril()
    total = weights.sum(-1, keepdim=True)
    return weights @ v / torch.where(total == 0, 1.0, total)


@FORMS
@PADDED
@LENGTHS
def test_output_and_gradients_are_those_of_the_formula(n, padded, causal):
    layer, inputs = performer(causal, features=32), qkv(n, n, 0.5)
    mask = ragged(n) if padded else None
    out = layer.attend(*inputs, mask)
    expected = by_the_formula(*inputs, mask, layer.projection, causal)
    agree(out, expected, *inputs)


def test_queries_and_keys_may_differ_in_number():
    layer, inputs = performer(features=32), qkv(5, 11, 0.5)
    expected = by_the_formula(*inputs, ragged(11), layer.projection, False)
    torch.testing.assert_close(layer.attend(*inputs, ragged(11)), expected, rtol=1e-10, atol=0)


@FORMS
def test_fp32_is_exact_on_large_inputs(causal):
    layer, inputs = performer(causal, features=64), qkv(100, 100, 3.0)
    expected = by_the_formula(*inputs, None, layer.projection, causal)
    out = layer.float().attend(*(part.float() for part in inputs), None)
    assert (out - expected).norm() / expected.norm() < 1e-4


@pytest.mark.parametrize("orthogonal", [True, False], ids=["orthogonal", "independent"])
def test_the_error_falls_as_the_root_of_the_number_of_features(orthogonal):
    inputs = 0.5 * torch.randn(3, 2, HEADS, 128, 32).double()
    exact = softmax_attention(*inputs)
    counts = [64, 256, 1024, 4096]

    def error(features: int) -> float:
        layers = [performer(False, 32, features=features, orthogonal=orthogonal) for _ in range(6)]
        misses = torch.stack([layer.attend(*inputs, None) - exact for layer in layers])
        return float(misses.square().mean().sqrt() / exact.square().mean().sqrt())

    errors = [error(features) for features in counts]
    slope = math.log(errors[-1] / errors[0]) / math.log(counts[-1] / counts[0])
    assert -0.6 < slope < -0.4
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("chunk", [1, 7, 99, 100, 1000])
def test_the_size_of_a_causal_chunk_does_not_matter(chunk):
    layer, inputs = performer(True, features=16), qkv(100, 100, 0.5)
    expected = layer.attend(*inputs, ragged(100))
    layer.chunk = chunk
    torch.testing.assert_close(layer.attend(*inputs, ragged(100)), expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("width", [128, 192, 256, 512])
def test_wide_causal_heads_are_as_exact_in_single_precision_as_in_double(width):
    size = Size(dim=width, heads=1, max_len=64, causal=True, dropout=0.0)
    torch.manual_seed(0)
    layer = Performer(size)
    inputs = [torch.randn(2, 1, 64, width) for _ in range(3)]
    out = layer.attend(*inputs, None)
    expected = layer.double().attend(*(part.double() for part in inputs), None)
    assert expected.abs().amin(-1).max() > 0
    torch.testing.assert_close(out.double(), expected, rtol=1e-3, atol=1e-4)


def test_rows_of_the_projection_are_orthogonal_within_blocks_and_gaussian_in_norm():
    w = draw_projection(torch.empty(2005, 8), orthogonal=True).double()
    norms = w.norm(dim=1)
    for block in (w / norms[:, None]).split(8):
        eye = torch.eye(len(block), dtype=w.dtype)
        torch.testing.assert_close(block @ block.T, eye, rtol=0, atol=1e-5)
    # |w|^2 has mean 8 and variance 16: the mean of 2005 deviates by 0.09.
    assert norms.square().mean() == pytest.approx(8.0, abs=0.4)
    assert norms.square().var() == pytest.approx(16.0, rel=0.25)
    # Uniform directions: each coordinate has mean 0 and variance 1, over 2005 rows.
    assert w.mean(0).abs().max() < 0.15
    torch.testing.assert_close(w.T @ w / 2005, torch.eye(8).double(), rtol=0, atol=0.15)


def test_directions_in_one_dimension_point_both_ways():
    signs = draw_projection(torch.empty(1000, 1), orthogonal=True).sign()
    assert abs(signs.mean()) < 0.15


def test_independent_rows_are_not_orthogonal():
    w = draw_projection(torch.empty(8, 8), orthogonal=False)
    assert (w @ w.T).triu(1).abs().max() > 0.1


def test_redrawing_changes_training_outputs_only():
    layer, inputs = performer(features=16, redraw=True), qkv(9, 9, 0.5)
    initial = layer.projection.clone()
    assert not torch.equal(layer.attend(*inputs, None), layer.attend(*inputs, None))
    layer.eval()
    expected = by_the_formula(*inputs, None, initial, False)
    torch.testing.assert_close(layer.attend(*inputs, None), expected)
    assert torch.equal(layer.projection, initial)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_published_package_without_its_epsilon_agrees(monkeypatch):
    pytest.importorskip("distutils", reason="performer-pytorch needs distutils or setuptools")
    package = pytest.importorskip("performer_pytorch").performer_pytorch
    # Its epsilon of 1e-4 in every feature is a bias that the formula does not have.
    monkeypatch.setattr(package, "softmax_kernel", partial(package.softmax_kernel, eps=0.0))
    theirs = package.FastAttention(WIDTH, nb_features=32).double()
    layer, inputs = performer(features=32), qkv(63, 63, 0.5)
    layer.projection.copy_(theirs.projection_matrix)
    torch.testing.assert_close(layer.attend(*inputs, None), theirs(*inputs), rtol=1e-9, atol=1e-12)
