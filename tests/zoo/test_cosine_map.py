"""The chunked map from tokens to tokens equals its plain definition, forward and backward."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from zoo.cost import flops, peak_bytes
from zoo.kernels import cosine_map, cosine_map_chunked
from zoo.kernels import cosine_map_loops as loops
from zoo.kernels.cosine_map import chunked, plain, suits

DIM, GROUPS, WIDTH = 6, 4, 5


@pytest.fixture(autouse=True, params=["operations", "loops"])
def several_chunks(monkeypatch, request):
    """Chunks of 40 tokens: of several samples, or of a part of one; the last is smaller.

    bf16 has loops alone.
    """
    compiled = {torch.bfloat16, torch.float64} if request.param == "loops" else {torch.bfloat16}
    monkeypatch.setattr(cosine_map_chunked, "COMPILED", compiled)
    monkeypatch.setattr(cosine_map_chunked, "CHUNK", 40)


def inputs(n: int, dtype: torch.dtype, maps: int = 3, width: int = WIDTH) -> list[torch.Tensor]:
    """x, weight, bias, output_map and output_bias; `maps` is 1 where all samples have the same."""
    features = GROUPS * width
    shapes = [(3, n, DIM), (features, DIM), (features,), (maps, features, DIM), (DIM,)]
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


def run(through, given, mask, with_gram=True):
    """Outputs of both kinds, and gradients of a loss in which every entry has its own weight."""
    tokens, grams = through(*given, GROUPS, mask, with_gram)
    torch.manual_seed(7)
    # The gradients of the Gram matrices are not symmetric, those of padded tokens are not zero.
    pulled = [torch.randn(part.shape).to(part.dtype) for part in (tokens, grams)]
    return [tokens, grams, *torch.autograd.grad([tokens, grams], given, pulled)]


@pytest.mark.parametrize("maps", [1, 3], ids=["shared", "own"])
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("n", [1, 19, 40, 63, 100])
def test_the_chunked_map_is_the_plain_one_forward_and_backward(n, padded, maps):
    given = inputs(n, torch.float64, maps)
    # Not contiguous.
    given[0] = given[0].detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    mask = None
    if padded:
        mask = torch.rand(3, n) < 0.6
        mask[1] = False
    for one, other in zip(run(chunked, given, mask), run(plain, given, mask), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("width", [1, 8, 19, 33])
@pytest.mark.parametrize("chunk", [700, 4000], ids=["parts", "samples"])
def test_the_loops_are_right_for_several_blocks_and_every_width(monkeypatch, chunk, width):
    # Blocks of 256 tokens, of which the last is smaller, and strips of 8; vectors of 16 entries.
    monkeypatch.setattr(cosine_map_chunked, "CHUNK", chunk)
    given, mask = inputs(1005, torch.float64, width=width), torch.rand(3, 1005) < 0.6
    for one, other in zip(run(chunked, given, mask), run(plain, given, mask), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_loops_do_not_depend_on_how_threads_share_their_blocks():
    phi, d_phi = np.random.default_rng(0).normal(size=(2, 2, 700, GROUPS, WIDTH))
    real, d_grams = np.ones((2, 700), bool), np.ones((2, GROUPS, loops.LANES, loops.LANES))
    blocks, results = 2 * loops.blocks(700), []
    for cuts in ([0, blocks], [0, 1, 4, blocks]):
        u, given, norms = phi.copy(), d_phi.copy(), np.empty(phi.shape[:3])
        grams = np.empty((2, blocks // 2, GROUPS, WIDTH, WIDTH))
        d_bias = np.zeros((2, blocks // 2, GROUPS, WIDTH))
        for part in pairwise(cuts):
            loops.unit_features(u, real, norms, grams, 1e-12, *part)
        for part in pairwise(cuts):
            loops.unit_features_gradient(u, norms, d_grams, given, d_bias, *part)
        results.append((u, norms, grams, given, d_bias))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_it_is_chosen_for_long_inputs_of_a_precision_that_its_loops_have():
    x = torch.zeros(1, cosine_map.CHUNKED_FROM, DIM)
    assert suits(x)
    assert suits(x.bfloat16())
    assert suits(x.double())
    assert not suits(x.half())
    assert not suits(x[:, 1:])
    with torch.autocast("cpu", dtype=torch.float16):
        assert not suits(x)


@pytest.mark.parametrize("through", [chunked, plain])
def test_without_gram_matrices_tokens_and_gradients_are_those_of_the_tokens_alone(through):
    given, mask = inputs(63, torch.float64), torch.rand(3, 63) < 0.6
    tokens, grams, *gradients = run(through, given, mask, with_gram=False)
    assert grams.shape == (0, GROUPS, WIDTH, WIDTH)
    expected_tokens, _ = through(*given, GROUPS, mask, True)
    torch.manual_seed(7)
    pulled = torch.randn(expected_tokens.shape).double()
    expected = torch.autograd.grad(expected_tokens, given, pulled)
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


@pytest.mark.parametrize("with_gram", [True, False])
def test_the_products_of_compiled_loops_are_counted_as_operations(with_gram):
    n, given = 63, inputs(63, torch.float64)
    counted = flops(lambda: run(chunked, given, None, with_gram))
    # Three products with each matrix, forward and for both gradients; Gram matrices, forward and
    # backward.
    assert counted == 3 * n * 2 * (6 * GROUPS * WIDTH * DIM + 2 * with_gram * GROUPS * WIDTH**2)


def peak(n: int, backward: bool, grad_mode: bool = True) -> int:
    """Peak memory of the chunked map, of both passes or of the first alone."""
    given = [part.detach().requires_grad_(backward) for part in inputs(n, torch.float64)]

    def call():
        with torch.set_grad_enabled(grad_mode):
            tokens, grams = chunked(*given, GROUPS, None, True)
            if backward and grad_mode:
                torch.autograd.grad([tokens, grams], given, [tokens.detach(), grams.detach()])

    return peak_bytes(call, torch.device("cpu"))


@pytest.mark.parametrize(
    ("backward", "grad_mode", "numbers"),
    [
        # The output and the gradient of the input; features and their norms.
        (True, True, 2 * DIM + GROUPS * WIDTH + GROUPS),
        (True, False, DIM),
        (False, True, DIM),
    ],
    ids=["training", "no-grad", "no-input-requires-grad"],
)
def test_memory_grows_by_what_is_stored_for_each_token(backward, grad_mode, numbers):
    short, long = (peak(n, backward, grad_mode) for n in (400, 4000))
    assert long - short == 3 * 3600 * 8 * numbers


@pytest.mark.parametrize("n", [19, 40, 100])
@pytest.mark.parametrize("samples", [3, 0])
def test_chunks_without_a_backward_pass_share_memory_and_not_values(n, samples):
    x, weight, bias, output_map, output_bias = inputs(n, torch.float64)
    given = (x[:samples], weight, bias, output_map[:samples], output_bias)
    mask = torch.rand(3, n) < 0.6
    mask[1] = False
    with torch.no_grad():
        actual, expected = (
            through(*given, GROUPS, mask[:samples], True) for through in (chunked, plain)
        )
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n", [20, 100])
def test_a_second_backward_pass_gives_the_same_gradients(n):
    given = inputs(n, torch.float64)
    tokens, grams = chunked(*given, GROUPS, None, True)
    total = tokens.square().sum() + grams.square().sum()
    first, second = (torch.autograd.grad(total, given, retain_graph=True) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("through", "dtype"),
    [(chunked, torch.bfloat16), (plain, torch.bfloat16), (plain, torch.float16)],
)
@pytest.mark.parametrize("maps", [1, 3], ids=["shared", "own"])
def test_gradients_of_half_precision_are_those_of_double_precision_within_rounding(
    through, dtype, maps
):
    given = [part.detach().to(dtype) for part in inputs(100, torch.float32, maps)]
    mask = torch.rand(3, 100) < 0.6
    given, exact = (
        [part.to(kind).requires_grad_() for part in given] for kind in (dtype, torch.float64)
    )
    for one, other in zip(run(through, given, mask), run(plain, exact, mask), strict=True):
        error = (one.double() - other).abs().amax() / other.abs().amax()
        assert error < 16 * torch.finfo(dtype).eps


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
