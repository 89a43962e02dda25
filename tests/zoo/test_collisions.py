"""The tiled sums are the plain ones, forward and backward, wherever the tiles end."""

import pytest
import torch

from tests.zoo.oracle import FORMS, agree, qkv
from zoo.kernels import collisions
from zoo.kernels.collisions import Form, plain, tiled


def units(n: int, m: int) -> list[torch.Tensor]:
    q, k, v = qkv(n, m)
    return [*(torch.nn.functional.normalize(part.detach(), dim=-1) for part in (q, k)), v.detach()]


@FORMS
@pytest.mark.parametrize(
    ("n", "tau", "bound"),
    [(1, 8, False), (63, 1, True), (63, 8, True), (100, 1, False), (100, 2, True), (100, 3, False)],
)
def test_tiles_equal_the_definition(n, tau, bound, causal, monkeypatch):
    # Seven queries a tile at n = 100, and the last one smaller.
    monkeypatch.setattr(collisions, "TILE", 700)
    inputs = [part.requires_grad_() for part in units(n, n)]
    form = Form(causal, tau, bound)
    agree(tiled(*inputs, form), plain(*inputs, form), *inputs)


@FORMS
def test_tiles_of_the_default_size_equal_the_definition(causal):
    inputs = [part.requires_grad_() for part in units(1000, 1000)]
    form = Form(causal, 8, False)
    agree(tiled(*inputs, form), plain(*inputs, form), *inputs)


def test_queries_and_keys_may_differ_in_number():
    inputs = [part.requires_grad_() for part in units(5, 11)]
    form = Form(False, 8, False)
    agree(tiled(*inputs, form), plain(*inputs, form), *inputs)


@FORMS
@pytest.mark.parametrize("sums", [tiled, plain])
def test_the_sums_are_those_of_the_formula(sums, causal):
    q, k, v = units(20, 20)
    expected = torch.zeros_like(v)
    for b, h, i in torch.cartesian_prod(torch.arange(2), torch.arange(2), torch.arange(20)):
        for j in range(int(i) + 1 if causal else 20):
            angle = torch.arccos(q[b, h, i] @ k[b, h, j])
            expected[b, h, i] += (1 - angle / torch.pi) ** 8 * v[b, h, j]
    torch.testing.assert_close(sums(q, k, v, Form(causal, 8, False)), expected)


def test_tiles_store_no_matrix_of_weights():
    inputs = [part.requires_grad_() for part in units(100, 100)]
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        tiled(*inputs, Form(False, 8, False))
    assert max(part.numel() for part in saved) == inputs[0].numel()


def test_the_derivative_at_a_cosine_of_one_is_bounded():
    s = torch.ones(1, 1, 1, 1, requires_grad=True)
    (slope,) = torch.autograd.grad(collisions.collision_probabilities(s, 8, False).sum(), s)
    assert slope.item() == pytest.approx(8 / torch.pi / (64 * torch.finfo(s.dtype).eps) ** 0.5)
