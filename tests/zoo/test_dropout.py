"""Dropout on a CPU: the distribution of its masks, its gradients, and where PyTorch's is used."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from zoo.kernels.dropout import LEVELS, Dropout, add_dropout, dropout

DTYPES = [torch.float32, torch.float64, torch.bfloat16]
MANY = 2**16 + 3


def seeded(function, *inputs, seed: int = 5):
    torch.manual_seed(seed)
    return function(*inputs)


def dropped(p: float, seed: int = 5) -> Tensor:
    """1 where an entry is dropped, 0 elsewhere, in float64."""
    return (seeded(dropout, torch.ones(MANY), p, seed=seed) == 0).double()


def published(seed: int, count: int) -> np.ndarray:
    """16 bits for each entry from SplitMix64, whose statistical tests are published."""
    z = np.uint64(seed) + np.arange(-(-count // 4), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return (z ^ (z >> np.uint64(31))).view(np.uint16)[:count]


def test_bits_are_those_of_splitmix64():
    # The generator's sequence begins at counter 1; its values for this seed are published.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert published(1234567, 20).view(np.uint64)[1:].tolist() == expected


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 4095, 4096, 4097, 70_001])
def test_an_entry_is_dropped_if_its_bits_are_below_the_threshold(count):
    seed = int(seeded(lambda: torch.empty((), dtype=torch.int64).random_()))
    draws, ones = published(seed, count), torch.ones(count)
    for threshold in (66, 6554, int(draws.max(initial=1))):
        mask, p = torch.from_numpy(draws >= threshold), threshold / LEVELS
        assert torch.equal(seeded(dropout, ones, p) != 0, mask)
        assert torch.equal(seeded(add_dropout, ones, ones, p) > 1, mask)


def test_calls_and_seeds_drop_independently_of_each_other():
    torch.manual_seed(0)
    masks = [(dropout(torch.ones(MANY), 0.5) == 0).double() for _ in range(4)]
    masks.append(dropped(0.5, seed=1))
    correlations = torch.corrcoef(torch.stack(masks)) - torch.eye(len(masks))
    assert correlations.abs().max() < 4.5 / MANY**0.5


@pytest.mark.parametrize("dtype", DTYPES)
def test_kept_entries_are_scaled_so_that_the_expectation_is_the_input(dtype):
    x = torch.randn(4, 99, 30, dtype=dtype)
    y = seeded(dropout, x, 0.3)
    threshold = round(LEVELS * 0.3)
    assert y.dtype is dtype
    assert y.shape == x.shape
    upcast = torch.promote_types(dtype, torch.float32)
    # The factor is rounded to fp32, and bf16 only at the end.
    scaled = x.to(upcast) * torch.tensor(LEVELS / (LEVELS - threshold), dtype=upcast)
    assert torch.equal(y, torch.where(y == 0, 0, scaled.to(dtype)))
    assert 0.6 < (y != 0).double().mean() < 0.8
    assert dropout(torch.ones(MANY), 0.3).mean() == pytest.approx(1, abs=0.01)


def test_the_state_of_the_default_generator_determines_the_mask():
    first, second = (dropout(torch.ones(1000), 0.5) for _ in range(2))
    assert not torch.equal(first, second)
    state = torch.get_rng_state()
    third = dropout(torch.ones(1000), 0.5)
    torch.set_rng_state(state)
    assert torch.equal(third, dropout(torch.ones(1000), 0.5))


def test_masks_do_not_depend_on_the_number_of_threads_or_on_the_dtype(set_threads):
    results = []
    for number in (1, 2, 3):
        set_threads(number)
        results.append(dropped(0.1))
    results += [seeded(dropout, torch.ones(MANY, dtype=dtype), 0.1) == 0 for dtype in DTYPES]
    assert all(torch.equal(results[0], mask.double()) for mask in results)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_the_limits_of_p(p):
    x = torch.randn(3, 5)
    assert torch.equal(dropout(x, p), (1 - p) * x)
    assert torch.equal(add_dropout(x, x, p), (2 - p) * x)


def test_evaluation_mode_drops_nothing_and_draws_nothing():
    layer, x = Dropout(0.5).eval(), torch.randn(3, 5)
    state = torch.get_rng_state()
    assert layer(x) is x
    assert torch.equal(layer.add(x, 2 * x), 3 * x)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_is_the_mask_times_the_scale(dtype):
    x = torch.randn(3, 50, 7, dtype=dtype, requires_grad=True)
    y = seeded(dropout, x, 0.4)
    gradient = torch.randn_like(y)
    y.backward(gradient)
    mask = seeded(dropout, torch.ones_like(x), 0.4)
    # As of `y`: the product is rounded once.
    assert torch.equal(x.grad, seeded(dropout, gradient, 0.4))
    torch.testing.assert_close(x.grad, gradient * mask)


@pytest.mark.slow
def test_first_and_second_derivatives_are_correct():
    x = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
    residual = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)

    def square(x: Tensor, residual: Tensor) -> Tensor:
        return seeded(add_dropout, residual, seeded(dropout, x, 0.5).square(), 0.5)

    assert torch.autograd.gradcheck(square, (x, residual))
    assert torch.autograd.gradgradcheck(square, (x, residual))


def test_views_of_any_strides_drop_the_entries_of_their_copy():
    x = torch.randn(6, 5, 4)
    for view in (x.transpose(0, 2), x[:, ::2], x[:, :1].expand(6, 5, 4)):
        assert torch.equal(seeded(dropout, view, 0.5), seeded(dropout, view.contiguous(), 0.5))
        both = seeded(add_dropout, view, view, 0.5)
        assert torch.equal(both, view + seeded(dropout, view, 0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "of_residual",
    [
        torch.float32,
        *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in (torch.bfloat16, torch.float64)),
    ],
)
def test_the_sum_with_a_residual_is_that_of_two_steps(of_residual, dtype):
    residual = torch.randn(2, 33, 64, dtype=of_residual, requires_grad=True)
    x = torch.randn(2, 33, 64, dtype=dtype, requires_grad=True)
    y, expected = seeded(add_dropout, residual, x, 0.2), residual + seeded(dropout, x, 0.2)
    assert y.dtype is expected.dtype is torch.promote_types(of_residual, dtype)
    # The sum is rounded once, the two steps round the product too.
    torch.testing.assert_close(y, expected, rtol=2**-7, atol=2**-7 * x.abs().max().item())
    gradient = torch.randn_like(y)
    ours = torch.autograd.grad(y, (residual, x), gradient)
    theirs = torch.autograd.grad(expected, (residual, x), gradient)
    assert [gradient.dtype for gradient in ours] == [of_residual, dtype]
    torch.testing.assert_close(ours, theirs)


def test_recomputation_drops_the_same_entries():
    x = torch.randn(100, requires_grad=True)
    layer = Dropout(0.5)
    y = checkpoint(lambda x: layer(x).square(), x, use_reentrant=False)
    assert isinstance(y, Tensor)
    y.sum().backward()
    mask = y.detach() != 0
    torch.testing.assert_close(x.grad, torch.where(mask, 8 * x.detach(), 0.0))


def test_pytorchs_dropout_is_used_where_loops_cannot_run(monkeypatch):
    def refuse(*_):
        raise AssertionError

    monkeypatch.setattr("zoo.kernels.dropout._run", refuse)
    half = torch.ones(100, dtype=torch.float16)
    assert torch.equal(seeded(dropout, half, 0.5), seeded(F.dropout, half, 0.5))
    assert dropout(torch.ones(100, device="meta"), 0.5).is_meta
    masks = torch.func.vmap(lambda x: dropout(x, 0.5), randomness="different")(torch.ones(2, 100))
    assert not torch.equal(*masks)
    with pytest.raises(AssertionError):
        dropout(torch.ones(100), 0.5)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout = Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout.add(x, self.dropout(x))


@pytest.mark.slow
def test_a_compiled_or_exported_layer_has_the_dropout_of_pytorch(no_type_checks):
    exported = torch.export.export(Twice(), (torch.ones(3, 5),))
    assert str(exported.graph).count("aten.dropout") == 2
    y = torch.compile(Twice(), backend="aot_eager", fullgraph=True)(torch.ones(10_000))
    # Dropped first or second, and 1 + 2 * 2 where neither.
    assert set(y.tolist()) == {1.0, 5.0}
    assert (y == 5).double().mean() == pytest.approx(0.25, abs=0.02)


def test_bf16_is_rounded_to_nearest_even_as_by_pytorch():
    # Half of the distance of two bf16 numbers is added to one with an even, then an odd last bit.
    residual = torch.tensor([1, 1 + 2**-7]).bfloat16().repeat(50)
    x = torch.full((100,), 2**-9).bfloat16()
    y = seeded(add_dropout, residual, x, 0.5)
    mask = seeded(dropout, x, 0.5) != 0
    assert mask.view(-1, 2).sum(0).min() > 9
    expected = (residual.float() + torch.where(mask, 2**-8, 0.0)).bfloat16()
    assert torch.equal(y, expected)
