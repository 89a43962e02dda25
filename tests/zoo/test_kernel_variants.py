"""Variants with weights by kernels: simple cases, extreme inputs, and the features themselves."""

import math

import pytest
import torch

import zoo
from tests.zoo import oracle
from tests.zoo.formulas import CASES
from tests.zoo.oracle import FORMS, HEADS, PADDED, WIDTH, create, gradients, qkv
from tests.zoo.test_formulas import by_head
from zoo.kernels.collisions import collision_probabilities
from zoo.variants import performer


def formula(name: str, layer: zoo.Attention, *qkv: torch.Tensor) -> torch.Tensor:
    return by_head(next(case for case in CASES if case.name == name), layer, *qkv)


@FORMS
def test_vectors_without_a_direction_give_zero_and_finite_gradients(causal):
    assert create("cosine").power.tolist() == [0.5, 0.5]  # as in the paper
    for name in ("cosine", "yoso"):
        inputs = [part.float() for part in qkv(9, 9, 0.0)]
        out = create(name, causal=causal).float().attend(*inputs, None)
        assert (out == 0).all()
        assert all(gradient.isfinite().all() for gradient in gradients(out, *inputs))
    layer, (q, k, v) = create("cosformer", causal=causal), qkv(9)
    q = torch.cat([-q[:, :, :1].abs(), q[:, :, 1:]], 2)  # no positive coordinate
    out = layer.attend(q, k, v, None)
    assert (out[:, :, 0] == 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients(out, q, k, v))


def test_a_step_of_cosformer_beyond_max_len_has_the_last_position():
    layer = create("cosformer", causal=True, max_len=4).eval()
    x, state = torch.randn(1, layer.size.dim).double(), layer.start(1)
    for _ in range(12):
        tokens, state = layer.step(x, state)
    # Equal tokens are equal values, whatever their weights are, as long as none is negative.
    expected, _ = layer.step(x, layer.start(1))
    torch.testing.assert_close(tokens, expected)


def test_wide_causal_heads_are_as_exact_in_single_precision_as_in_double():
    layer = create("performer", causal=True, dim=HEADS * 512).float()
    inputs = [torch.randn(2, 1, 64, 512) for _ in range(3)]
    out = layer.attend(*inputs, None)
    expected = layer.double().attend(*(part.double() for part in inputs), None)
    assert expected.abs().amin(-1).max() > 0
    torch.testing.assert_close(out.double(), expected, rtol=1e-3, atol=1e-4)


def test_rows_of_the_projection_are_orthogonal_within_blocks_and_gaussian_in_norm():
    w = performer.draw_projection(torch.empty(2005, 8), orthogonal=True).double()
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
    signs = performer.draw_projection(torch.empty(1000, 1), orthogonal=True).sign()
    assert abs(signs.mean()) < 0.15  # both directions of one dimension
    w = performer.draw_projection(torch.empty(8, 8), orthogonal=False)
    assert (w @ w.T).triu(1).abs().max() > 0.1


def test_redrawing_changes_training_outputs_only():
    layer, inputs = create("performer", features=16, redraw=True), qkv(9, 9, 0.5)
    initial = layer.projection.clone()
    assert not torch.equal(layer.attend(*inputs, None), layer.attend(*inputs, None))
    expected = formula("performer", layer.eval(), *inputs)
    torch.testing.assert_close(layer.attend(*inputs, None), expected)
    assert torch.equal(layer.projection, initial)


def test_the_bound_is_the_papers_surrogate_and_lies_below_the_exact_derivative():
    grid = torch.linspace(-0.999, 0.999, 500).double()[None, None, None].requires_grad_()
    sums = (collision_probabilities(grid, 8, flag).sum() for flag in (False, True))
    exact, bound = (torch.autograd.grad(total, grid)[0] for total in sums)
    weights = (1 - torch.arccos(grid) / math.pi) ** 8
    torch.testing.assert_close(bound, 4 * weights)
    torch.testing.assert_close(exact, torch.autograd.grad(weights.sum(), grid)[0])
    assert (bound <= exact).all()


@pytest.mark.parametrize("gradient", ["exact", "bound"])
@pytest.mark.parametrize("side", [1.0, -1.0], ids=["parallel", "opposite"])
def test_gradients_are_bounded_where_that_of_arccos_is_not(side, gradient):
    layer = create("yoso", gradient=gradient).float()
    q, _, v = (part.float().detach().requires_grad_() for part in qkv(50))
    for nudge in (0.0, 1e-7, 1e-5, 1e-3):
        k = (side * q + nudge * torch.randn_like(q)).detach().requires_grad_()
        actual = gradients(layer.attend(q, k, v, None), q, k, v)
        reference = gradients(layer.attend(q, torch.randn_like(q).requires_grad_(), v, None), q, v)
        assert all(part.isfinite().all() for part in actual)
        assert actual[0].norm() < 30 * reference[0].norm()


def test_fp32_gradients_are_right_near_a_cosine_of_one():
    q, k, v = (part.detach() for part in qkv(40))
    k = q + 0.02 * k * q.norm(dim=-1, keepdim=True)
    double = [part.clone().requires_grad_() for part in (q, k, v)]
    single = [part.float().requires_grad_() for part in (q, k, v)]
    layer = create("yoso")
    exact = gradients(formula("yoso", layer, *double), *double)
    actual = gradients(layer.float().attend(*single, None), *single)
    for gradient, expected in zip(actual, exact, strict=True):
        assert (gradient - expected).norm() / expected.norm() < 1e-3


@PADDED
def test_the_loss_of_agf_measures_how_far_both_factors_are_from_orthogonal(padded):
    layer, x, mask = create("agf", reg=0.3), oracle.draw(40), oracle.ragged(40) if padded else None
    actual = layer(x, mask=mask).losses["orthogonality"]
    u, vh, _ = layer.left_right_value(x).unflatten(-1, (3 * HEADS, -1)).split(HEADS, dim=2)
    expected = []
    for b in range(2):
        real = slice(None) if mask is None else mask[b]
        for h in range(HEADS):
            for factor in (u[b, real, h].softmax(1), vh[b, real, h].softmax(0)):
                expected.append((factor.T @ factor - torch.eye(WIDTH)).abs().mean())
    torch.testing.assert_close(actual, 0.3 * 2 * torch.stack(expected).mean())


@pytest.mark.parametrize("dim", [64, 128])
def test_a_convolution_has_the_parameters_of_softmax_within_two_percent(dim):
    conv, softmax = (create(name, dim=dim).parameters() for name in ("conv", "softmax"))
    conv, softmax = (sum(p.numel() for p in each) for each in (conv, softmax))
    assert 0.98 * softmax < conv <= softmax
