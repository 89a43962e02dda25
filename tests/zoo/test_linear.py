"""Linear attention against its formula, a published package, and precision."""

import pytest
import torch
from torch.nn import functional as F

from tests.zoo.oracle import FORMS, HEADS, LENGTHS, PADDED, WIDTH, agree, gradients, qkv, ragged
from zoo.contract import Size
from zoo.variants.linear import Linear, features


def linear(causal: bool = False, **options) -> Linear:
    size = Size(dim=HEADS * WIDTH, heads=HEADS, max_len=1000, causal=causal, dropout=0.0)
    return Linear(size, **options).double()


def by_the_formula(q, k, v, mask, causal):
    """All n x m weights in memory."""

    def phi(x):
        return torch.where(x > 0, x + 1, x.exp())

    weights = torch.einsum("bhne,bhme->bhnm", phi(q), phi(k))
    if mask is not None:
        weights = weights * mask[:, None, None, :]
    if causal:
        weights = weights * torch.ones(weights.shape[-2:]).tril()
    sums = weights.sum(-1, keepdim=True)
    return weights @ v / torch.where(sums == 0, 1.0, sums)


@FORMS
@PADDED
@LENGTHS
def test_output_and_gradients_are_those_of_the_formula(n, padded, causal):
    layer, inputs, mask = linear(causal), qkv(n, n), ragged(n) if padded else None
    out, expected = layer.attend(*inputs, mask), by_the_formula(*inputs, mask, causal)
    agree(out, expected, *inputs)


def test_queries_and_keys_may_differ_in_number():
    layer, inputs = linear(), qkv(5, 11)
    expected = by_the_formula(*inputs, ragged(11), False)
    torch.testing.assert_close(layer.attend(*inputs, ragged(11)), expected, rtol=1e-10, atol=0)


def test_the_features_are_elu_plus_one_with_its_gradient():
    x = torch.tensor([-5.0, -1.0, 0.0, 1.0, 5.0], dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(features(x), F.elu(x) + 1)
    for one, other in zip(gradients(features(x), x), gradients(F.elu(x), x), strict=True):
        torch.testing.assert_close(one, other)


@FORMS
@pytest.mark.parametrize("shift", [-30.0, 0.0, 30.0])
def test_fp32_is_exact_where_features_are_small_or_large(shift, causal):
    inputs = qkv(100, 100, 3.0, shift)
    expected = by_the_formula(*inputs, None, causal)
    out = linear(causal).attend(*(part.float() for part in inputs), None)
    assert (out - expected).norm() / expected.norm() < 1e-5


@FORMS
def test_a_query_of_large_negative_coordinates_is_exact(causal):
    q, k, v = qkv(100, 100)
    expected = by_the_formula(q - 200, k, v, None, causal)
    out = linear(causal).attend((q - 200).float(), k.float(), v.float(), None)
    assert (out - expected).norm() / expected.norm() < 1e-4


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_published_package_agrees():
    pytest.importorskip("distutils", reason="performer-pytorch needs distutils or setuptools")
    package = pytest.importorskip("performer_pytorch").performer_pytorch
    q, k, v = qkv(63, 63)
    theirs = package.linear_attention(F.elu(q) + 1, F.elu(k) + 1, v)
    torch.testing.assert_close(linear().attend(q, k, v, None), theirs, rtol=1e-10, atol=1e-12)
