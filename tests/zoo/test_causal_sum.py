"""Sums over the past against their definition, and their independence of the future."""

import pytest
import torch

from tests.zoo.oracle import agree, gradients
from zoo.kernels import causal_sum


def sides(n: int, dtype=torch.float64) -> list[torch.Tensor]:
    """Queries, keys and values of different widths, features of either sign."""
    return [torch.randn(2, 3, n, width, dtype=dtype).requires_grad_() for width in (5, 5, 4)]


@pytest.mark.parametrize(
    ("n", "chunk"),
    [(1, 64), (63, 1), (63, 64), (64, 64), (65, 64), (65, 7), (200, 64), (200, 2000)],
)
def test_chunked_sums_and_gradients_are_those_of_the_definition(n, chunk):
    inputs = sides(n)
    out, expected = causal_sum.chunked(*inputs, chunk), causal_sum.plain(*inputs)
    agree(out, expected, *inputs, outputs=(1e-10, 1e-10), slopes=(1e-10, 1e-10))


def test_the_definition_is_the_sum_over_tokens_so_far():
    q, k, v = sides(9)
    for i in range(9):
        expected = sum((q[:, :, i] * k[:, :, j]).sum(-1, True) * v[:, :, j] for j in range(i + 1))
        torch.testing.assert_close(causal_sum.plain(q, k, v)[:, :, i], expected)


@pytest.mark.parametrize(
    ("cut", "scale"), [(1, 0.0), (31, -1.0), (32, 1e6), (33, 1e6), (64, 0.0), (99, -1.0)]
)
def test_the_future_never_changes_a_past_sum(scale, cut):
    inputs = sides(100, torch.float32)
    changed = [torch.cat([part[:, :, :cut], scale * part[:, :, cut:]], 2) for part in inputs]
    before, after = (causal_sum.chunked(*parts, 32) for parts in (inputs, changed))
    assert torch.equal(before[:, :, :cut], after[:, :, :cut])
    assert not torch.equal(before[:, :, cut:], after[:, :, cut:])


def test_the_total_of_all_tokens_is_the_last_sum_over_the_past():
    q, k, v = sides(50)
    last = causal_sum.total(q, k, v, True, 16)[:, :, -1:]
    torch.testing.assert_close(causal_sum.total(q[:, :, -1:], k, v, False, 16), last)


def test_a_mean_is_a_weighted_mean():
    q, k, v = sides(20)
    weights = (q.exp() @ k.exp().mT).tril()
    expected = (weights / weights.sum(-1, keepdim=True)) @ v
    torch.testing.assert_close(causal_sum.mean(q.exp(), k.exp(), v, True, 8), expected)


def test_zero_by_zero_is_zero_with_gradients_of_zero():
    inputs = [torch.zeros(1, 1, 3, width, requires_grad=True) for width in (2, 2, 4)]
    out = causal_sum.mean(*inputs, False, 8)
    assert (out == 0).all()
    assert all((gradient == 0).all() for gradient in gradients(out, *inputs))


def test_an_underflowing_denominator_gives_zero():
    numerator = torch.ones(1, 1, 3, 2)
    denominator = torch.tensor([1e-40, 1e-33, 1e-25]).reshape(1, 1, 3, 1)
    out = causal_sum.ratio(numerator, denominator)
    assert (out[:, :, :2] == 0).all()
    torch.testing.assert_close(out[:, :, 2], torch.full((1, 1, 2), 1e25))
