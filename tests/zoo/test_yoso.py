"""YOSO-E against its formula, finite differences, sampled hashes, and gradients near a
cosine of one.

Eager and on a CPU, so by `collisions.tiled`; tests/zoo/test_collisions.py compares it with `plain`.
"""

import math

import pytest
import torch
from torch.nn import functional as F

from tests.zoo.oracle import FORMS, HEADS, LENGTHS, PADDED, WIDTH, agree, gradients, qkv, ragged
from zoo.contract import Size
from zoo.kernels.collisions import collision_probabilities
from zoo.variants.yoso import Yoso


def yoso(causal: bool = False, dropout: float = 0.0, **options) -> Yoso:
    size = Size(dim=HEADS * WIDTH, heads=HEADS, max_len=1000, causal=causal, dropout=dropout)
    return Yoso(size, **options).double()


def by_the_formula(q, k, v, mask, tau, causal):
    """All weights at once, with autograd's own derivative of arccos."""
    cosines = torch.einsum("bhne,bhme->bhnm", F.normalize(q, dim=-1), F.normalize(k, dim=-1))
    weights = (1 - torch.arccos(cosines) / math.pi) ** tau
    if mask is not None:
        weights = weights * mask[:, None, None, :]
    if causal:
        weights = weights * torch.ones(weights.shape[-2:]).tril()
    return F.normalize(torch.einsum("bhnm,bhme->bhne", weights, v), dim=-1)


@FORMS
@PADDED
@LENGTHS
def test_output_and_gradients_are_those_of_the_formula(n, padded, causal):
    inputs, mask = qkv(n, n), ragged(n, first=1) if padded else None
    out = yoso(causal).attend(*inputs, mask)
    expected = by_the_formula(*inputs, mask, 8, causal)
    agree(out, expected, *inputs, outputs=(1e-9, 1e-11), slopes=(1e-8, 1e-10))


def test_queries_and_keys_may_differ_in_number():
    inputs = qkv(5, 11)
    expected = by_the_formula(*inputs, ragged(11), 8, False)
    torch.testing.assert_close(yoso().attend(*inputs, ragged(11)), expected)


def test_weights_are_probabilities_of_collisions():
    q, k = (F.normalize(torch.randn(6, WIDTH), dim=-1) for _ in range(2))
    planes = torch.randn(20_000, 3, WIDTH)
    one, other = ((planes @ side.T) > 0 for side in (q, k))
    probability = (one[..., :, None] == other[..., None, :]).all(1).float().mean(0)
    weights = collision_probabilities((q @ k.T)[None, None], 3, False)[0, 0]
    # Four standard errors of a mean over 20,000 draws.
    torch.testing.assert_close(weights, probability, rtol=0, atol=4 * 0.5 / 20_000**0.5)


def test_every_output_has_length_one():
    norms = yoso().attend(*qkv(20, 20), None).norm(dim=-1)
    torch.testing.assert_close(norms, torch.ones_like(norms))


def test_the_bound_is_the_papers_surrogate_and_lies_below_the_exact_derivative():
    grid = torch.linspace(-0.999, 0.999, 500).double()[None, None, None].requires_grad_()
    exact, bound = (
        torch.autograd.grad(collision_probabilities(grid, 8, flag).sum(), grid)[0]
        for flag in (False, True)
    )
    weights = (1 - torch.arccos(grid) / math.pi) ** 8
    torch.testing.assert_close(bound, 4 * weights)
    torch.testing.assert_close(exact, torch.autograd.grad(weights.sum(), grid)[0])
    assert (bound <= exact).all()


def test_the_choice_of_gradient_does_not_change_the_output():
    inputs = qkv(20, 20)
    exact, bound = (yoso(gradient=choice).attend(*inputs, None) for choice in ("exact", "bound"))
    assert torch.equal(exact, bound)
    assert not torch.allclose(gradients(exact, *inputs)[0], gradients(bound, *inputs)[0])


@pytest.mark.parametrize("gradient", ["exact", "bound"])
@pytest.mark.parametrize("side", [1.0, -1.0], ids=["parallel", "opposite"])
def test_gradients_are_bounded_where_that_of_arccos_is_not(side, gradient):
    layer = yoso(tau=8, gradient=gradient).float()
    q, _, v = (part.float().detach().requires_grad_() for part in qkv(50, 50))
    for nudge in (0.0, 1e-7, 1e-5, 1e-3):
        k = (side * q + nudge * torch.randn_like(q)).detach().requires_grad_()
        actual = gradients(layer.attend(q, k, v, None), q, k, v)
        reference = gradients(layer.attend(q, torch.randn_like(q).requires_grad_(), v, None), q, v)
        assert all(part.isfinite().all() for part in actual)
        assert actual[0].norm() < 30 * reference[0].norm()


def test_fp32_gradients_are_right_near_a_cosine_of_one():
    q, k, v = (part.detach() for part in qkv(40, 40))
    k = q + 0.02 * k * q.norm(dim=-1, keepdim=True)
    double = [part.clone().requires_grad_() for part in (q, k, v)]
    single = [part.float().requires_grad_() for part in (q, k, v)]
    exact = gradients(by_the_formula(*double, None, 8, False), *double)
    actual = gradients(yoso().float().attend(*single, None), *single)
    for one, other in zip(actual, exact, strict=True):
        assert (one - other).norm() / other.norm() < 1e-3


def test_zero_vectors_give_zero_and_gradients_of_zero():
    q, k, v = [part.detach() for part in qkv(9, 9)]
    q[:, :, 3], k[:, :, 5], v[0] = 0.0, 0.0, 0.0
    inputs = [part.requires_grad_() for part in (q, k, v)]
    out = yoso().attend(*inputs, None)
    assert (out[0] == 0).all()
    dq, dk, dv = gradients(out, *inputs)
    assert (dq[:, :, 3] == 0).all()
    assert (dk[:, :, 5] == 0).all()
    assert all(part.isfinite().all() for part in (dq, dk, dv))


def test_dropout_applies_to_weights_in_training_only():
    inputs, layer = [part.detach() for part in qkv(30, 30)], yoso(dropout=0.5)
    exact = by_the_formula(*inputs, None, 8, False)
    assert not torch.allclose(layer.attend(*inputs, None), exact)
    torch.testing.assert_close(layer.eval().attend(*inputs, None), exact)
