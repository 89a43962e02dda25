"""Properties beyond formulas: initialisation, dropout, states, extreme inputs, fp32."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import zoo
from tests.zoo import oracle
from tests.zoo.formulas import CASES
from tests.zoo.oracle import DIM, FORMS, HEADS, PADDED, WIDTH, agree, decode, gradients, qkv
from tests.zoo.test_formulas import by_head
from zoo.kernels.collisions import collision_probabilities
from zoo.kernels.delta import decayed_chunks
from zoo.variants import mesa, performer
from zoo.variants.retention import log_gamma


@pytest.mark.parametrize(
    ("rank", "max_len"), [(8, 64), (7, 100), (64, 64), (256, 64), (1, 5), (256, 1024)]
)
def test_a_fresh_linformer_attends_to_the_means_of_segments(rank, max_len):
    (q, k, v) = inputs = qkv(max_len)
    k_means, v_means = (
        F.adaptive_avg_pool1d(part.flatten(0, 1).mT, rank).mT.unflatten(0, part.shape[:2])
        for part in (k, v)
    )
    expected = F.scaled_dot_product_attention(q, k_means, v_means)
    for sharing, count in (("none", 4), ("headwise", 2), ("kv", 1)):
        layer = oracle.create("linformer", max_len=max_len, rank=rank, sharing=sharing)
        assert layer.projections.numel() == count * rank * max_len
        # The means were computed in fp32.
        agree(layer.attend(*inputs, None), expected, outputs=(1e-5, 1e-6))


def test_the_steps_of_mamba3_start_between_their_bounds():
    steps = F.softplus(oracle.create("mamba3", causal=True, min_step=0.5, max_step=2.0).step_bias)
    assert steps.min() >= 0.5 and steps.max() <= 2


def test_reformer_draws_rotations_in_training_as_many_as_chunks_rounded_up_to_even():
    (q, _, v), layer = qkv(100), oracle.create("reformer", bucket=8).eval()
    before, expected = layer.rotations.clone(), layer.attend(q, q, v, None)
    assert not torch.equal(layer.train().attend(q, q, v, None), expected)
    assert torch.equal(layer.rotations, before)
    pairs = {64: 1, 65: 1, 128: 1, 129: 2, 1000: 8, 4096: 32}
    layers = {n: zoo.create("reformer", dim=DIM, heads=HEADS, max_len=n) for n in pairs}
    assert {n: layer.rotations.shape[-1] for n, layer in layers.items()} == pairs


create = partial(oracle.create, causal=True)


@pytest.mark.parametrize("causal", [False, True])
def test_long_sequences_of_retention_are_exact_in_fp32(causal):
    q, k, v = (torch.randn(1, 4, 6000, 2).double() for _ in range(3))
    position = torch.arange(6000)
    # Of the literal sums these will do; 59 has no divisor with a chunk of 128 in common.
    queries = position[::59]
    single = [part.float() for part in (q, k, v)]
    gamma = log_gamma(4).to(single[0])[None, :, None, None].expand(-1, -1, 6000, -1)
    out = decayed_chunks(*single, gamma, chunk=16, causal=causal)
    # The slowest of four heads has a half-life of 178 tokens.
    for h in range(4):
        distance = queries[:, None] - position
        decay = (1 - 2.0 ** (-5 - h)) ** distance.abs().double()
        decay = decay.masked_fill(distance < 0, 0.0) if causal else decay
        exact = (decay * (q[0, h, queries] @ k[0, h].T)) @ v[0, h]
        assert (out[0, h, queries] - exact).norm() / exact.norm() < 1e-6


def test_steps_equal_forward_beyond_the_last_level():
    layer, x = create("log-linear", levels=3).eval(), torch.randn(2, 90, DIM).double()
    outputs, state = decode(layer, x)
    torch.testing.assert_close(outputs, layer(x).tokens)
    torch.testing.assert_close(layer.prefill(x)[1], state)


def uniform(*shape: int) -> Tensor:
    return torch.rand(1, 1, *shape).double()


def unit(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)


def systems(n: int) -> list[Tensor]:
    q, k = torch.randn(2, 2, HEADS, n, WIDTH).double()
    gates = uniform(n, 1).log() / 16, uniform(n, 1)
    h, log_alpha, beta = (x.expand(2, HEADS, -1, -1) for x in (torch.eye(WIDTH).double(), *gates))
    parts = h, q, unit(k), beta * unit(k), log_alpha, 0.25 + torch.rand(HEADS, WIDTH).double()
    return [x.clone().requires_grad_() for x in parts]


@pytest.mark.parametrize("n", [1, 63, 100, 1000, 4097])
def test_the_solutions_of_mesa_token_by_token_are_those_in_chunks(n):
    inputs, definition = systems(n), partial(mesa.solve, chunk=32)
    results = mesa._Solutions.apply(*inputs), definition(*inputs)
    slopes = [torch.randn(2, HEADS, rows, WIDTH).double() for rows in (n, WIDTH)]
    found = [(*out, *torch.autograd.grad(out, inputs, slopes)) for out in results]
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)
    penalty = create("mesa")._penalty(torch.zeros(1, HEADS, 1, WIDTH).double())
    torch.testing.assert_close(penalty, torch.ones(HEADS, WIDTH).double())


@pytest.mark.parametrize(("name", "median"), [("gated-delta", 0.94), ("kda", 0.93)])
def test_a_fresh_layer_remembers(name, median):
    layer = zoo.create(name, dim=512, heads=256, max_len=9, causal=True)
    alpha = layer.decay(torch.zeros(1, 1, 512))[0].detach().exp()
    assert alpha.median().item() == pytest.approx(median, abs=0.02)
    assert 0.3 < alpha.quantile(0.05) < 0.6 and 0.98 < alpha.quantile(0.95) < 1


@FORMS
def test_vectors_without_a_direction_give_zero_and_finite_gradients(causal):
    assert oracle.create("cosine").power.tolist() == [0.5, 0.5]  # as in the paper
    for name in ("cosine", "yoso"):
        inputs = [part.float() for part in qkv(9, 9, 0.0)]
        out = oracle.create(name, causal=causal).float().attend(*inputs, None)
        assert (out == 0).all()
        assert all(gradient.isfinite().all() for gradient in gradients(out, *inputs))
    layer, (q, k, v) = oracle.create("cosformer", causal=causal), qkv(9)
    q = torch.cat([-q[:, :, :1].abs(), q[:, :, 1:]], 2)  # no positive coordinate
    out = layer.attend(q, k, v, None)
    assert (out[:, :, 0] == 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients(out, q, k, v))


def test_a_step_of_cosformer_beyond_max_len_has_the_last_position():
    layer = oracle.create("cosformer", causal=True, max_len=4).eval()
    x, state = torch.randn(1, layer.size.dim).double(), layer.start(1)
    for _ in range(12):
        tokens, state = layer.step(x, state)
    # Equal tokens are equal values, whatever their weights are, as long as none is negative.
    expected, _ = layer.step(x, layer.start(1))
    torch.testing.assert_close(tokens, expected)


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
    w = performer.draw_projection(torch.empty(8, 8), orthogonal=False)
    assert (w @ w.T).triu(1).abs().max() > 0.1


def test_redrawing_changes_training_outputs_only():
    layer, inputs = oracle.create("performer", features=16, redraw=True), qkv(9, 9, 0.5)
    initial = layer.projection.clone()
    assert not torch.equal(layer.attend(*inputs, None), layer.attend(*inputs, None))
    case = next(case for case in CASES if case.name == "performer")
    expected = by_head(case, layer.eval(), *inputs)
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
    inputs, slopes = qkv(20), []
    for choice in ("exact", "bound"):
        slopes += gradients(oracle.create("yoso", gradient=choice).attend(*inputs, None), inputs[0])
    assert not torch.allclose(*slopes)


@pytest.mark.parametrize("gradient", ["exact", "bound"])
@pytest.mark.parametrize("side", [1.0, -1.0], ids=["parallel", "opposite"])
def test_gradients_are_bounded_where_that_of_arccos_is_not(side, gradient):
    layer = oracle.create("yoso", gradient=gradient).float()
    q, _, v = (part.float().detach().requires_grad_() for part in qkv(50))
    for nudge in (0.0, 1e-7, 1e-5, 1e-3):
        k = (side * q + nudge * torch.randn_like(q)).detach().requires_grad_()
        actual = gradients(layer.attend(q, k, v, None), q, k, v)
        reference = gradients(layer.attend(q, torch.randn_like(q).requires_grad_(), v, None), q, v)
        assert all(part.isfinite().all() for part in actual)
        assert actual[0].norm() < 30 * reference[0].norm()


@PADDED
def test_the_loss_of_agf_measures_how_far_both_factors_are_from_orthogonal(padded):
    layer, x = oracle.create("agf", reg=0.3), oracle.draw(40)
    mask = oracle.ragged(40) if padded else None
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
    conv, softmax = (oracle.create(name, dim=dim).parameters() for name in ("conv", "softmax"))
    conv, softmax = (sum(p.numel() for p in each) for each in (conv, softmax))
    assert 0.98 * softmax < conv <= softmax
