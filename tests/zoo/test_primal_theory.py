"""Primal-Attention compared with the theory of KSVD; the published sampling; its options."""

import pytest
import torch

from tests.zoo.oracle import DIM, HEADS
from tests.zoo.primal_oracle import agree, build, positions
from zoo.contract import Size
from zoo.registry import UserError
from zoo.variants.primal import Primal

WIDTH, TOKENS = 4, 24


def solved(form: str) -> tuple[Primal, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A layer of one head at the exact KSVD solution for x, then x, K V and K^T U.

    The rank is the head's width, so that the decomposition of K is complete.
    """
    size = Size(dim=WIDTH, heads=1, max_len=TOKENS, causal=False, dropout=0.0)
    options = {"rank": WIDTH, "rank_multi": 3, "eta": 1.0, "projections": form, "trace": "data"}
    layer = Primal(size, **options).double()
    x = torch.randn(1, TOKENS, WIDTH).double()
    with torch.no_grad():
        q, k = layer.query_key(x[0]).chunk(2, dim=1)
        phi_q, phi_k = (side / side.norm(dim=1, keepdim=True) for side in (q, k))
        kernel = phi_q @ phi_k.T
        u, s, vt = torch.linalg.svd(kernel)
        u, s, v = u[:, :WIDTH], s[:WIDTH], vt[:WIDTH].T
        targets = torch.stack([phi_k.T @ v, phi_q.T @ u])
        if form == "dependent":
            # W with X_s^T W = target: the sampled tokens outnumber the width.
            sampled = x[0, positions(TOKENS, 3 * WIDTH)]
            targets = torch.linalg.pinv(sampled.T) @ targets
        layer.directions.copy_(targets[:, None])
        # The loss has a mean over tokens where the theory has a sum: Lambda^2 = N / S.
        layer.scales.copy_((TOKENS / s).sqrt()[None])
        layer.out.weight.copy_(torch.eye(WIDTH))
        layer.out.bias.zero_()
        layer.merge.bias.zero_()
    return layer, x, kernel @ v, kernel.T @ u


@pytest.mark.parametrize("form", ["dependent", "independent"])
def test_the_primal_is_the_dual_at_the_exact_solution(form):
    layer, x, dual_e, dual_r = solved(form)
    one, nothing = torch.eye(WIDTH), torch.zeros(WIDTH, WIDTH)
    for merge, dual in (([one, nothing], dual_e), ([nothing, one], dual_r)):
        with torch.no_grad():
            layer.merge.weight.copy_(torch.cat(merge, dim=1))
        agree(layer(x, x, None).tokens[0], dual)


@pytest.mark.parametrize("mean", ["batch", "sample"])
@pytest.mark.parametrize("form", ["dependent", "independent"])
def test_the_objective_is_zero_at_the_exact_solution_and_not_next_to_it(form, mean):
    layer, x, _, _ = solved(form)
    layer.ksvd_mean = mean
    assert layer(x, x, None).losses["ksvd"] < 1e-20
    for perturbed in (layer.scales, layer.directions, layer.query_key.weight):
        before = perturbed.detach().clone()
        with torch.no_grad():
            perturbed.mul_(1 + 0.1 * torch.rand_like(perturbed))
            assert layer(x, x, None).losses["ksvd"] > 1e-6
            perturbed.copy_(before)
    with torch.no_grad():
        layer.scales.neg_()
        assert layer(x, x, None).losses["ksvd"] < 1e-20


def test_the_theory_holds_for_any_features():
    phi_q, phi_k = torch.randn(2, 30, 6).double()
    kernel = phi_q @ phi_k.T
    u, s, vt = torch.linalg.svd(kernel)
    u, s, v = u[:, :6], s[:6], vt[:6].T
    w_e, w_r = phi_k.T @ v, phi_q.T @ u
    agree(phi_q @ w_e, kernel @ v)
    agree(phi_k @ w_r, v * s)
    energy = ((phi_q @ w_e) ** 2 / s).sum() / 2 + ((phi_k @ w_r) ** 2 / s).sum() / 2
    assert abs(energy - torch.trace(w_e.T @ w_r)) < 1e-10 * energy


def sampled_by(layer: Primal, x: torch.Tensor, mask: torch.Tensor | None) -> list[set[int]]:
    """The tokens of each sample that every output depends on, by the gradients."""
    dependent = []
    for output in (0, x.shape[1] // 2):
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(layer(x, x, mask).tokens[:, output].abs().sum(), x)
        dependent.append(gradient.abs().sum(2) > 0)
    # An output depends on its own token, sampled or not: only what both depend on was sampled.
    both = dependent[0] & dependent[1]
    return [set(row.nonzero()[:, 0].tolist()) for row in both]


@pytest.mark.parametrize(("rank", "multi"), [(3, 5), (20, 10), (30, 10), (1, 1)])
@pytest.mark.parametrize("n", [63, 100, 1000, 1024])
def test_sampled_positions_are_the_published_ones_without_padding(n, rank, multi):
    layer = build("dependent", n, rank=rank, rank_multi=multi)
    x = torch.randn(1, n, DIM).double()
    count = min(n, rank * multi)
    published = torch.linspace(0, n - 1, count, dtype=torch.float64).long().tolist()
    assert sampled_by(layer, x, None) == [set(published)]


def test_sampled_positions_are_spread_evenly_over_the_real_tokens():
    x, mask = torch.randn(3, 100, DIM).double(), torch.rand(3, 100) < 0.6
    mask[:, [0, 50]] = True
    samples = sampled_by(build("dependent"), x, mask)
    for sample, is_real in zip(samples, mask, strict=True):
        real = is_real.nonzero()[:, 0]
        assert sample == set(real[positions(len(real), 15)].tolist())


def test_projections_auto_are_dependent_unless_causal():
    size = Size(dim=DIM, heads=HEADS, max_len=50, causal=False, dropout=0.0)
    assert Primal(size).dependent
    assert not build("causal").dependent
    assert Primal(size).directions.shape == (2, HEADS, 50, 30)
    assert Primal(size, rank=4).directions.shape == (2, HEADS, 40, 4)


def test_a_causal_layer_rejects_projections_that_depend_on_later_tokens():
    with pytest.raises(UserError, match="projections=dependent uses future tokens"):
        build("causal", projections="dependent")
