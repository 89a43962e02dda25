"""The chunked map from tokens to tokens equals its plain definition, forward and backward."""

import pytest
import torch

from zoo.cost import flops
from zoo.kernels import cosine_map, cosine_map_chunked
from zoo.kernels.cosine_map import Map, chunked, plain, suits

DIM, GROUPS, WIDTH = 6, 4, 5


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch):
    monkeypatch.setattr(cosine_map_chunked, "CHUNK", 40)


def inputs(n: int, dtype=torch.float64, maps=3) -> list[torch.Tensor]:
    features = GROUPS * WIDTH
    shapes = [(3, n, DIM), (features, DIM), (features,), (maps, features, DIM), (DIM,)]
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


def call(through, leaves, mask=None, with_gram=True):
    return through(leaves[0], Map(*leaves[1:]), GROUPS, mask, with_gram)


def run(through, leaves, mask=None, with_gram=True):
    tokens, grams = call(through, leaves, mask, with_gram)
    torch.manual_seed(7)
    # Gradients of Gram matrices are not symmetric, and gradients of padded tokens not zero.
    pulled = [torch.randn(part.shape, dtype=torch.float64).to(part) for part in (tokens, grams)]
    return [tokens, grams, *torch.autograd.grad([tokens, grams], leaves, pulled)]


def near(actual, expected) -> None:
    torch.testing.assert_close([*actual], [*expected], rtol=1e-10, atol=1e-10)


def test_it_is_chosen_for_long_inputs_of_full_precision():
    x = torch.zeros(1, cosine_map.CHUNKED_FROM, DIM)
    assert suits(x) and suits(x.double())
    assert not any(suits(other) for other in (x.bfloat16(), x.half(), x[:, 1:]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not suits(x)


@pytest.mark.parametrize("through", [chunked, plain])
def test_without_gram_matrices_and_of_one_input_tokens_and_gradients_are_the_same(through):
    leaves, mask = inputs(63), torch.rand(3, 63) < 0.6
    tokens, grams, *gradients = run(through, leaves, mask, with_gram=False)
    assert grams.shape == (0, GROUPS, WIDTH, WIDTH)
    expected_tokens, _ = call(through, leaves, mask)
    torch.manual_seed(7)
    pulled = torch.randn(expected_tokens.shape, dtype=torch.float64)
    expected = torch.autograd.grad(expected_tokens, leaves, pulled, retain_graph=True)
    near([tokens, *gradients], [expected_tokens, *expected])
    for chosen, slope in enumerate(expected):
        alone = [part.detach().requires_grad_(i == chosen) for i, part in enumerate(leaves)]
        near(torch.autograd.grad(call(through, alone, mask)[0], alone[chosen], pulled), [slope])


@pytest.mark.parametrize("with_gram", [True, False])
def test_its_products_are_counted_as_operations(with_gram):
    n, leaves = 63, inputs(63)
    counted = flops(lambda: run(chunked, leaves, with_gram=with_gram))
    # Three products with each matrix, forward and for both gradients; Gram matrices, forward and
    # backward.
    assert counted == 3 * n * 2 * (6 * GROUPS * WIDTH * DIM + 2 * with_gram * GROUPS * WIDTH**2)


@pytest.mark.parametrize("n", [19, 100])
def test_chunks_without_a_backward_pass_share_memory_and_not_values(n):
    (x, weight, bias, output_map, output_bias), mask = inputs(n), torch.rand(3, n) < 0.6
    mask[1] = False
    for samples in (3, 0):
        leaves = (x[:samples], weight, bias, output_map[:samples], output_bias)
        with torch.no_grad():
            near(*(call(through, leaves, mask[:samples]) for through in (chunked, plain)))


@pytest.mark.parametrize(("dtype", "maps"), [(torch.bfloat16, 1), (torch.float16, 3)])
def test_gradients_of_half_precision_are_those_of_double_precision_within_rounding(dtype, maps):
    rounded = [part.detach().to(dtype) for part in inputs(100, torch.float32, maps)]
    mask = torch.rand(3, 100) < 0.6
    half, exact = (
        [part.to(kind).requires_grad_() for part in rounded] for kind in (dtype, torch.float64)
    )
    for actual, expected in zip(run(plain, half, mask), run(plain, exact, mask), strict=True):
        error = (actual.double() - expected).abs().amax() / expected.abs().amax()
        assert error < 16 * torch.finfo(dtype).eps


@pytest.mark.parametrize("through", [chunked, plain])
def test_a_zero_vector_has_the_feature_zero_and_finite_gradients(through):
    leaves = inputs(9)
    with torch.no_grad():
        leaves[0][:, 4], leaves[2][:] = 0.0, 0.0
    tokens, *others = run(through, leaves)
    assert torch.equal(tokens[:, 4], leaves[-1][None].expand(3, -1))
    assert all(part.isfinite().all() for part in (tokens, *others))


def test_sums_of_half_precision_are_fp32():
    leaves = [100 * part.detach().bfloat16() for part in inputs(1000, torch.float32)]
    _, grams = call(plain, leaves)
    assert grams.dtype == torch.float32
    lengths = grams.diagonal(dim1=-2, dim2=-1).sum(-1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 1000), rtol=2e-3, atol=0)
