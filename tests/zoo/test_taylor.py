"""Taylor linear attention against its formula."""

import pytest
import torch

import zoo
from tests.zoo.oracle import DIM, FORMS, HEADS, LENGTHS, PADDED, agree, qkv, ragged, valid
from zoo.variants.taylor import features


def by_the_formula(q, k, v, mask, causal):
    """All n x m weights, from products of queries and keys."""
    s = q @ k.mT / q.shape[-1] ** 0.5
    weights = 1 + s + s**2 / 2
    weights = weights.tril() if causal else weights
    if mask is not None:
        weights = weights * mask[:, None, None]
    return weights / weights.sum(-1, keepdim=True) @ v


@FORMS
@PADDED
@LENGTHS
def test_output_and_gradients_are_those_of_the_formula(n, padded, causal):
    sizes = {"dim": DIM, "heads": HEADS, "max_len": 1000, "causal": causal}
    layer = zoo.create("taylor", **sizes, feature_dim=3).double()
    inputs = [part.detach()[..., :width] for part, width in zip(qkv(n), (3, 3, 4), strict=True)]
    inputs, mask = [part.requires_grad_() for part in inputs], ragged(n, 1) if padded else None
    out = valid(layer.attend(*inputs, mask), mask)
    agree(out, valid(by_the_formula(*inputs, mask, causal), mask), *inputs)


@pytest.mark.parametrize(("channels", "width"), [(1, 3), (4, 15), (16, 153)])
def test_products_of_features_are_the_polynomial_and_near_the_exponential(channels, width):
    q, k = torch.randn(2, 500, channels).double()
    phi_q, phi_k = features(q), features(k)
    assert phi_q.shape == (500, width)
    s, actual = (q * k).sum(-1) / channels**0.5, (phi_q * phi_k).sum(-1)
    torch.testing.assert_close(actual, 1 + s + s**2 / 2)
    assert (actual >= 0.5 - 1e-12).all()
    assert ((actual - s.exp()).abs() <= s.abs() ** 3 / 6 * s.abs().exp() + 1e-12).all()
