"""Sampled tokens, and gradients that are added in place, equal plain indexing."""

import pytest
import torch

from zoo.cost import peak_bytes
from zoo.kernels.sampled_tokens import in_place, plain

# A token that is sampled twice, and samples with different positions.
POSITIONS = torch.tensor([[0, 3, 3, 8], [1, 1, 7, 8]])


def results(through, x):
    """The sample, and the gradient where x is also used itself."""
    tokens, sample = through(x, POSITIONS)
    weights = torch.arange(1.0, sample.numel() + 1, dtype=x.dtype).view_as(sample)
    loss = tokens.square().sum() + (sample.square() * weights).sum()
    return sample, *torch.autograd.grad(loss, x)


@pytest.mark.parametrize("contiguous", [True, False])
def test_both_give_the_same_tokens_and_gradients(contiguous):
    x = torch.randn(2, 9, 5).double().requires_grad_()
    tokens = x if contiguous else torch.randn(5, 9, 2).double().requires_grad_().permute(2, 1, 0)
    for one, other in zip(results(in_place, tokens), results(plain, tokens), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_the_gradient_of_a_sample_that_is_used_alone_is_zero_elsewhere():
    x = torch.randn(2, 9, 5).double().requires_grad_()
    (gradient,) = torch.autograd.grad(in_place(x, POSITIONS)[1].sum(), x)
    assert gradient[0, [0, 3, 8], 0].tolist() == [1, 2, 1]
    assert gradient[0, [1, 2, 4, 5, 6, 7]].abs().max() == 0


def test_second_derivatives_are_correct():
    x = torch.randn(1, 9, 2).double().requires_grad_()

    def cubes(x):
        tokens, sample = in_place(x, POSITIONS[:1])
        return tokens.pow(3).sum() + sample.pow(3).sum()

    assert torch.autograd.gradgradcheck(cubes, x)


def test_no_second_tensor_of_the_length_of_the_tokens_is_made_for_the_gradient():
    x = torch.randn(2, 5000, 8, requires_grad=True)

    def step(through):
        tokens, sample = through(x, POSITIONS)
        torch.autograd.grad((2 * tokens).sum() + sample.sum(), x)

    peaks = [peak_bytes(lambda take=take: step(take), x.device) for take in (in_place, plain)]
    assert peaks[1] - peaks[0] > 0.9 * x.nbytes
