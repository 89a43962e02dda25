"""The chunked map from tokens to tokens equals its plain definition, forward and backward."""

import pytest
import torch

from zoo.cost import peak_bytes
from zoo.kernels import cosine_map
from zoo.kernels.cosine_map import chunked, plain

DIM, GROUPS, WIDTH = 6, 4, 5


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch):
    """Chunks of 40 tokens: of several samples, or of a part of one; the last is smaller."""
    monkeypatch.setattr(cosine_map, "CHUNK", 40)


def inputs(n: int, dtype: torch.dtype, maps: int = 3) -> list[torch.Tensor]:
    """x, weight, bias, output_map and output_bias; `maps` is 1 where all samples have the same."""
    features = GROUPS * WIDTH
    shapes = [(3, n, DIM), (features, DIM), (features,), (maps, features, DIM), (DIM,)]
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


def run(through, given, mask, with_gram=True):
    """Outputs of both kinds, and gradients of a loss in which every entry has its own weight."""
    tokens, grams = through(*given, GROUPS, mask, with_gram)
    torch.manual_seed(7)
    # The gradients of the Gram matrices are not symmetric, those of padded tokens are not zero.
    pulled = [torch.randn_like(part) for part in (tokens, grams)]
    return [tokens, grams, *torch.autograd.grad([tokens, grams], given, pulled)]


@pytest.mark.parametrize("maps", [1, 3], ids=["shared", "own"])
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("n", [1, 19, 63, 100])
def test_the_chunked_map_is_the_plain_one_forward_and_backward(n, padded, maps):
    given = inputs(n, torch.float64, maps)
    mask = None
    if padded:
        mask = torch.rand(3, n) < 0.6
        mask[1] = False
    for one, other in zip(run(chunked, given, mask), run(plain, given, mask), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("through", [chunked, plain])
def test_without_gram_matrices_tokens_and_gradients_are_those_of_the_tokens_alone(through):
    given, mask = inputs(63, torch.float64), torch.rand(3, 63) < 0.6
    tokens, grams, *gradients = run(through, given, mask, with_gram=False)
    assert grams.shape == (0, GROUPS, WIDTH, WIDTH)
    expected_tokens, _ = through(*given, GROUPS, mask, True)
    torch.manual_seed(7)
    expected = torch.autograd.grad(expected_tokens, given, torch.randn_like(expected_tokens))
    torch.testing.assert_close(
        [tokens, *gradients], [expected_tokens, *expected], rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("chosen", range(5))
def test_gradients_of_one_input_alone_are_correct(chosen):
    given = [
        part.detach().requires_grad_(i == chosen)
        for i, part in enumerate(inputs(63, torch.float64))
    ]
    actual = []
    for through in (chunked, plain):
        tokens, grams = through(*given, GROUPS, None, True)
        actual.append(torch.autograd.grad(tokens.sum() + grams.sum(), given[chosen])[0])
    torch.testing.assert_close(*actual, rtol=1e-10, atol=1e-10)


def test_the_memory_of_features_does_not_grow_with_tokens_where_no_gradient_is_needed():
    def peak(n: int) -> int:
        given = inputs(n, torch.float64)

        def call():
            with torch.no_grad():
                chunked(*given, GROUPS, None, True)

        # In addition to the output tokens.
        return peak_bytes(call, torch.device("cpu")) - given[0].nbytes

    assert peak(4000) == peak(400)
    given = inputs(400, torch.float64)
    with torch.no_grad():
        actual, expected = (through(*given, GROUPS, None, True) for through in (chunked, plain))
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("through", [chunked, plain])
def test_features_have_norm_one_and_zero_at_padding(through):
    mask = torch.rand(3, 63) < 0.6
    _, grams = through(*inputs(63, torch.float64), GROUPS, mask, True)
    # The trace of phi^T phi is the sum of squared lengths.
    lengths = grams.diagonal(dim1=-2, dim2=-1).sum(-1)
    torch.testing.assert_close(lengths, mask.sum(1).double()[:, None].expand(-1, GROUPS))


@pytest.mark.parametrize("through", [chunked, plain])
def test_a_zero_vector_has_the_feature_zero_and_finite_gradients(through):
    x, weight, bias, output_map, output_bias = inputs(9, torch.float64)
    with torch.no_grad():
        x[:, 4], bias[:] = 0.0, 0.0
    tokens, grams, *gradients = run(through, [x, weight, bias, output_map, output_bias], None)
    assert torch.equal(tokens[:, 4], output_bias[None].expand(len(x), -1))
    assert all(part.isfinite().all() for part in (tokens, grams, *gradients))


@pytest.mark.parametrize("through", [chunked, plain])
def test_sums_of_half_precision_are_fp32(through):
    given = [100 * part.detach().bfloat16() for part in inputs(1000, torch.float32)]
    _, grams = through(*given, GROUPS, None, True)
    assert grams.dtype == torch.float32
    lengths = grams.diagonal(dim1=-2, dim2=-1).sum(-1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 1000), rtol=2e-3, atol=0)
