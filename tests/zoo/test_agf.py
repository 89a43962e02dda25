"""The attentive graph filter against its formula, and Efficient Attention."""

from functools import partial
from math import prod

import pytest
import torch

import zoo
from tests.zoo.oracle import DIM, HEADS, LENGTHS, PADDED, agree, by_sample, draw, ragged, valid
from zoo.registry import UserError


def agf(theta: float = 0.7, **options) -> zoo.Attention:
    layer = zoo.create("agf", dim=DIM, heads=HEADS, max_len=1000, **options).double()
    torch.nn.init.normal_(layer.theta, std=theta)
    return layer


def binom(n, k):
    return prod((n - i) / (i + 1) for i in range(k))


def jacobi(k, a, b, z):
    """The polynomial as the sum of products of powers of (z - 1) / 2 and (z + 1) / 2."""
    terms = (
        binom(k + a, k - s) * binom(k + b, s) * ((z - 1) / 2) ** s * ((z + 1) / 2) ** (k - s)
        for s in range(k + 1)
    )
    return sum(terms)


def by_the_formula(layer, x):
    """Without padding, head by head."""
    u, vh, v = layer.left_right_value(x).chunk(3, -1)
    z, heads = layer.singular(x).sigmoid(), []
    for part in torch.arange(DIM).chunk(HEADS):
        p = sum(
            theta.tanh() * jacobi(k + 1, layer.a, layer.b, z[:, part])
            for k, theta in enumerate(layer.theta)
        )
        weights = (u[:, part].softmax(1) * (1 + p)) @ vh[:, part].softmax(0).T
        heads.append(weights @ v[:, part])
    return layer.out(torch.cat(heads, -1))


@PADDED
@LENGTHS
@pytest.mark.parametrize("options", [{}, {"degree": 6, "a": 1.5, "b": 2.0}, {"b": -2.0}], ids=str)
def test_output_and_gradients_are_those_of_the_formula(n, padded, options):
    layer, x, mask = agf(**options), draw(n), ragged(n) if padded else None
    out = valid(layer(x, mask=mask).tokens, mask)
    agree(out, by_sample(partial(by_the_formula, layer), x, mask), x, *layer.parameters())
    v = layer.left_right_value(x)[..., 2 * DIM :].unflatten(-1, (HEADS, -1)).transpose(1, 2)
    product = layer.out((layer.matrix(x, x, mask) @ v).transpose(1, 2).flatten(-2))
    torch.testing.assert_close(valid(product, mask), out)


@PADDED
def test_the_loss_measures_how_far_both_factors_are_from_orthogonal(padded):
    layer, x, mask = agf(reg=0.3), draw(40), ragged(40) if padded else None
    actual = layer(x, mask=mask).losses["orthogonality"]
    u, vh, _ = layer.left_right_value(x).unflatten(-1, (3 * HEADS, -1)).split(HEADS, dim=2)
    expected = []
    for b in range(2):
        real = slice(None) if mask is None else mask[b]
        for h in range(HEADS):
            for factor in (u[b, real, h].softmax(1), vh[b, real, h].softmax(0)):
                expected.append((factor.T @ factor - torch.eye(DIM // HEADS)).abs().mean())
    torch.testing.assert_close(actual, 0.3 * 2 * torch.stack(expected).mean())


def test_parameters_for_which_the_polynomials_have_no_recurrence_are_rejected():
    with pytest.raises(UserError, match=r"agf\.a=-1.0 and agf.b=-1.0"):
        zoo.create("agf", dim=DIM, heads=HEADS, max_len=9, a=-1.0, b=-1.0)
