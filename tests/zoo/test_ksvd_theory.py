"""The theory of `docs/primal.md`: its statements, each for random features in float64.

One direction of weights has the objective J = (|e|^2 + |r|^2) lambda / 2 - w_e . w_r, with the
scores e = Phi_q w_e and r = Phi_k w_r.
"""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

import zoo
from tests.zoo.oracle import DIM, HEADS
from tests.zoo.primal_oracle import agree, build, positions

QUERIES, KEYS, FEATURES, RANK = 9, 7, 4, 2


class Problem(NamedTuple):
    phi_q: Tensor
    phi_k: Tensor
    kernel: Tensor
    u: Tensor
    s: Tensor
    v: Tensor

    def weights(self, chosen: list[int]) -> tuple[Tensor, Tensor]:
        return self.phi_k.T @ self.v[:, chosen], self.phi_q.T @ self.u[:, chosen]


def random_problem() -> Problem:
    phi_q, phi_k = (torch.randn(n, FEATURES).double() for n in (QUERIES, KEYS))
    u, s, vt = torch.linalg.svd(phi_q @ phi_k.T)
    return Problem(phi_q, phi_k, phi_q @ phi_k.T, u[:, :FEATURES], s[:FEATURES], vt[:FEATURES].T)


def objective(problem: Problem, w_e: Tensor, w_r: Tensor, scale: Tensor) -> Tensor:
    e, r = problem.phi_q @ w_e, problem.phi_k @ w_r
    return ((e**2 * scale).sum() + (r**2 * scale).sum()) / 2 - (w_e * w_r).sum()


def gradients(problem: Problem, w_e: Tensor, w_r: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    w_e, w_r = (w.detach().requires_grad_() for w in (w_e, w_r))
    return torch.autograd.grad(objective(problem, w_e, w_r, scale), (w_e, w_r))


def hessian(problem: Problem, scale: Tensor) -> Tensor:
    def of(weights: Tensor) -> Tensor:
        return objective(problem, *weights.view(2, FEATURES, 1), scale)

    return torch.autograd.functional.hessian(of, torch.zeros(2 * FEATURES).double())


def alignment(scores: Tensor, basis: Tensor) -> float:
    return ((torch.linalg.qr(scores)[0].T @ basis) ** 2).sum().item() / basis.shape[1]


@pytest.mark.parametrize("name", ["softmax", "primal"])
def test_a_kernel_is_asymmetric_and_a_product_of_features_whose_primal_is_its_dual(name):
    layer = zoo.create(name, dim=8, heads=1, max_len=12).double()
    x, values = torch.randn(1, 12, 8).double(), torch.randn(12, 3).double()
    kernel = layer.matrix(x, x, None)[0, 0]
    assert (kernel - kernel.T).norm() > 0.05 * kernel.norm()
    u, s, vt = torch.linalg.svd(kernel)
    # The first pair is near constant in softmax, whose rows sum to 1.
    assert alignment(u[:, 1:3], vt[1:3].T) < 0.9
    phi_q, phi_k = u * s.sqrt(), vt.T * s.sqrt()
    agree(phi_q @ phi_k.T, kernel)
    # Any dual variables H: sum_j kappa(x_i, x_j) h_j, as values in attention, is Phi_q W.
    agree(phi_q @ (phi_k.T @ values), kernel @ values)


def test_the_lagrangian_is_stationary_at_singular_vectors_and_not_next_to_them():
    problem = random_problem()
    w_e, w_r = problem.weights([0, 1])
    scale = 1 / problem.s[:RANK]
    # e = K V = U S, r = K^T U = V S, and the multipliers e Lambda = U, r Lambda = V.
    u, v = problem.u[:, :RANK], problem.v[:, :RANK]
    point = [w_e, w_r, problem.phi_q @ w_e, problem.phi_k @ w_r, u, v]

    def gradient(values: list[Tensor]) -> list[Tensor]:
        w_e, w_r, e, r, h_e, h_r = values = [value.detach().requires_grad_() for value in values]
        lagrangian = ((e**2 * scale).sum() + (r**2 * scale).sum()) / 2 - (w_e * w_r).sum()
        errors = h_e * (e - problem.phi_q @ w_e), h_r * (r - problem.phi_k @ w_r)
        return list(torch.autograd.grad(lagrangian - sum(map(torch.sum, errors)), values))

    assert max(part.abs().max() for part in gradient(point)) < 1e-12
    for number, value in enumerate(point):
        near = [*point[:number], value + 0.1 * torch.randn_like(value), *point[number + 1 :]]
        assert max(part.abs().max() for part in gradient(near)) > 1e-3


def test_eigenvalues_of_the_shifted_problem_and_inverse_lambda_are_the_singular_values():
    problem = random_problem()
    block = torch.zeros(QUERIES + KEYS, QUERIES + KEYS).double()
    block[:QUERIES, QUERIES:], block[QUERIES:, :QUERIES] = problem.kernel, problem.kernel.T
    rest = torch.zeros(QUERIES + KEYS - 2 * FEATURES).double()
    expected = torch.cat([-problem.s, rest, problem.s]).sort().values
    torch.testing.assert_close(torch.linalg.eigvalsh(block), expected, rtol=0, atol=1e-12)
    agree(block @ torch.cat([problem.u, problem.v]), torch.cat([problem.u, problem.v]) * problem.s)
    for scale in (1 / problem.s[1], 1.01 / problem.s[1], torch.tensor(1.0).double()):
        null = (torch.linalg.eigvalsh(hessian(problem, scale)).abs() < 1e-10).sum()
        assert null == (scale == 1 / problem.s[1])


def test_the_objective_is_half_the_product_of_gradient_and_weights_and_zero_where_stationary():
    problem, scale = random_problem(), torch.rand(3).double()
    w_e, w_r = torch.randn(2, FEATURES, 3).double()
    by_e, by_r = gradients(problem, w_e, w_r, scale)
    product = ((by_e * w_e).sum() + (by_r * w_r).sum()) / 2
    torch.testing.assert_close(objective(problem, w_e, w_r, scale), product, rtol=1e-12, atol=0)
    for number in range(FEATURES):
        w_e, w_r = problem.weights([number])
        assert objective(problem, w_e, w_r, 1 / problem.s[number]).abs() < 1e-12
        terms = ((problem.phi_q @ w_e) ** 2).sum(), ((problem.phi_k @ w_r) ** 2).sum()
        for term in (*(part / problem.s[number] for part in terms), (w_e * w_r).sum()):
            torch.testing.assert_close(term, problem.s[number], rtol=1e-12, atol=0)


def test_a_solution_is_a_saddle_of_an_unbounded_objective_unless_it_is_the_smallest_triplet():
    problem = random_problem()
    for number in range(FEATURES):
        scale = 1 / problem.s[number]
        values, vectors = torch.linalg.eigh(hessian(problem, scale))
        negative, zero = (values < -1e-10).sum(), (values.abs() < 1e-10).sum()
        assert (negative, zero) == (FEATURES - 1 - number, 1)
        w_e, w_r = vectors[:, -1:].chunk(2)
        assert objective(problem, 1e3 * w_e, 1e3 * w_r, scale) > 1e4
        if number < FEATURES - 1:
            w_e, w_r = vectors[:, :1].chunk(2)
            assert objective(problem, 1e3 * w_e, 1e3 * w_r, scale) < -1


@pytest.mark.parametrize("chosen", [[0, 1], [2, 3], [0, 0], [3, 1]])
def test_any_singular_triplets_distinct_or_not_are_a_solution(chosen):
    problem = random_problem()
    w_e, w_r = problem.weights(chosen)
    scale = 1 / problem.s[chosen]
    assert max(part.abs().max() for part in gradients(problem, w_e, w_r, scale)) < 1e-12
    assert objective(problem, w_e, w_r, scale).abs() < 1e-12
    expected = len({*chosen} & {0, 1}) / 2
    if chosen != [0, 0]:
        assert alignment(problem.phi_q @ w_e, problem.u[:, :2]) == pytest.approx(expected)


def test_scores_orthogonal_to_the_best_singular_vectors_and_not_stationary_have_objective_zero():
    problem, w_r = random_problem(), torch.randn(FEATURES, RANK).double()
    # Scores in the span of the other left singular vectors: Phi_q w_e = U_rest A.
    w_e = torch.linalg.pinv(problem.phi_q) @ problem.u[:, RANK:] @ torch.randn(2, RANK).double()
    w_r = w_r * (w_e * w_r).sum().sign()
    scale = torch.rand(RANK).double()
    ones = objective(problem, w_e, w_r, scale) + (w_e * w_r).sum()
    scale = scale * (w_e * w_r).sum() / ones
    assert scale.min() > 0
    assert objective(problem, w_e, w_r, scale).abs() < 1e-12
    assert alignment(problem.phi_q @ w_e, problem.u[:, :RANK]) < 1e-20
    assert min(part.norm() for part in gradients(problem, w_e, w_r, scale)) > 1e-2


@pytest.mark.parametrize("trace", ["weights", "data"])
def test_some_lambda_gives_any_layer_of_positive_trace_a_zero_loss_without_gradient(trace):
    layer, x = build("dependent", trace=trace, eta=1.0), torch.randn(2, 20, DIM).double()
    with torch.no_grad():
        layer.directions[1] = layer.directions[0] + 0.1 * layer.directions[1]
    roots = layer.scales.detach().clone()

    def root_of_loss(factor: float) -> Tensor:
        with torch.no_grad():
            layer.scales.copy_(factor * roots)
        return layer(x, x, None).losses["ksvd"].sqrt()

    with torch.no_grad():
        # J = factor^2 energy - trace, and the loss is J^2.
        minus_trace = root_of_loss(0.0)
        small = root_of_loss(0.01)
        factor = (minus_trace / (minus_trace - small)).sqrt().item() / 100
    assert root_of_loss(factor / 2) > 1e-4
    loss = root_of_loss(factor).square()
    assert loss < 1e-16
    parameters = [layer.directions, layer.scales, layer.query_key.weight]
    for gradient in torch.autograd.grad(loss, parameters):
        assert gradient.abs().max() < 1e-6


def test_objectives_of_opposite_sign_of_two_heads_cancel_in_the_loss():
    layer, x = build("independent", eta=1.0), torch.randn(1, 20, DIM).double()
    with torch.no_grad():
        # With Lambda = 0, J is -Tr(W_e^T W_r) of each of the two heads.
        layer.scales.zero_()
        layer.directions[:, 1] = layer.directions[:, 0]
        layer.directions[1, 1].neg_()
        assert layer(x, x, None).losses["ksvd"] < 1e-28
        layer.directions[1, 1].neg_()
        assert layer(x, x, None).losses["ksvd"] > 1e-6


def test_with_the_published_trace_the_same_scores_have_any_objective():
    layer, x = build("dependent", eta=1.0), torch.randn(1, 20, DIM).double()
    before = layer(x, x, None)
    sampled = x[0, positions(20, 15)].unflatten(-1, (HEADS, -1))
    for head in range(HEADS):
        # Of 15 sampled tokens of width 4, weights in 11 dimensions have no effect on the scores.
        null = torch.linalg.svd(sampled[:, head].T)[2][-1]
        with torch.no_grad():
            layer.directions[:, head] += null[:, None]
    after = layer(x, x, None)
    agree(after.tokens, before.tokens)
    objectives = [attended.losses["ksvd"].sqrt() for attended in (before, after)]
    assert (objectives[1] - objectives[0]).abs() > 1


@pytest.mark.parametrize("trace", ["weights", "data"])
def test_the_published_trace_makes_another_kernel_stationary_that_of_sampled_tokens(trace):
    n, width, samples = 12, 4, 6
    size = {"dim": width, "heads": 1, "max_len": n, "rank": RANK, "rank_multi": samples // RANK}
    layer = zoo.create("primal", **size, trace=trace, eta=1.0).double()
    x = torch.randn(1, n, width).double()
    with torch.no_grad():
        phi_q, phi_k = (u / u.norm(dim=1, keepdim=True) for u in layer.query_key(x[0]).chunk(2, 1))
        sampled = x[0, positions(n, samples)]
        if trace == "weights":
            # The features are those that W_e and W_r, and not W_e|X and W_r|X, multiply.
            phi_q, phi_k = phi_q @ sampled.T, phi_k @ sampled.T
        u, s, vt = torch.linalg.svd(phi_q @ phi_k.T)
        w_e, w_r = phi_k.T @ vt[:RANK].T, phi_q.T @ u[:, :RANK]
        if trace == "data":
            w_e, w_r = (torch.linalg.pinv(sampled.T) @ w for w in (w_e, w_r))
        layer.directions.copy_(torch.stack([w_e, w_r])[:, None])
        layer.scales.copy_((n / s[:RANK]).sqrt()[None])
    assert layer(x, x, None).losses["ksvd"] < 1e-20
    # The gradient of J^2 is zero wherever J is; the gradient of J, if |J| is quadratic in a step.
    weights = layer.directions.detach().clone()
    for _ in range(3):
        direction = torch.randn_like(weights)
        slopes = []
        for step in (1e-4, 1e-5):
            with torch.no_grad():
                layer.directions.copy_(weights + step * direction)
            slopes.append(layer(x, x, None).losses["ksvd"].sqrt().item() / step)
        assert slopes[1] < 0.2 * slopes[0]


def test_the_alignment_of_a_random_subspace_is_rank_by_features_and_of_all_features_one():
    basis, problem = torch.eye(8).double()[:, :3], random_problem()
    found = [alignment(torch.randn(8, 3).double(), basis) for _ in range(2000)]
    assert sum(found) / len(found) == pytest.approx(3 / 8, abs=0.02)
    scores = problem.phi_q @ torch.randn(FEATURES, FEATURES).double()
    assert alignment(scores, problem.u) == pytest.approx(1, rel=1e-12)
