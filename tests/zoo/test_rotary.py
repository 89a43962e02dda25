"""Rotary positions: products depend on distances only, in the layers that have them."""

import pytest
import torch

from zoo.contract import Size
from zoo.kernels.rotary import apply_rotary
from zoo.variants.primal import Primal


def complex_rotation(x: torch.Tensor) -> torch.Tensor:
    """Equation 34, pairs as complex numbers."""
    n, pairs = x.shape[-2], x.shape[-1] // 2
    theta = 10_000.0 ** -(torch.arange(pairs).double() / pairs)
    rotation = torch.polar(torch.ones(n, pairs).double(), torch.arange(n).double()[:, None] * theta)
    actual = torch.complex(x[..., :pairs], x[..., pairs : 2 * pairs]) * rotation
    return torch.cat([actual.real, actual.imag, x[..., 2 * pairs :]], dim=-1)


@pytest.mark.parametrize("width", [8, 7, 1])
def test_pairs_of_channels_rotate_as_complex_numbers(width):
    x = torch.randn(2, 3, 11, width).double()
    torch.testing.assert_close(apply_rotary(x), complex_rotation(x), rtol=0, atol=1e-12)


def test_given_positions_replace_the_order():
    x = torch.randn(2, 3, 4, 8).double()
    positions = torch.tensor([[5, 0, 2, 9], [1, 1, 7, 3]])
    full = apply_rotary(
        x.new_zeros(2, 3, 10, 8).scatter(2, positions[:1, None, :, None].expand(2, 3, 4, 8), x)
    )
    torch.testing.assert_close(apply_rotary(x, positions)[0], full[0][:, positions[0]])
    assert not torch.allclose(apply_rotary(x, positions)[1], full[1][:, positions[0]])


def test_large_positions_are_exact_in_single_precision():
    x = torch.randn(1, 1, 1, 8)
    position = torch.tensor([[1_000_000]])
    exact = apply_rotary(x.double(), position)
    torch.testing.assert_close(apply_rotary(x, position).double(), exact, rtol=0, atol=1e-5)


def build(variant, *, rotary: bool, causal: bool = False):
    torch.manual_seed(3)
    return variant(
        Size(dim=12, heads=2, max_len=20, causal=causal, dropout=0.0, rotary=rotary)
    ).double()


def test_primal_rotates_queries_and_keys():
    size = Size(dim=12, heads=2, max_len=20, causal=False, dropout=0.0, rotary=True)
    layer = Primal(size, rank=3, projections="independent").double().eval()
    x = torch.randn(2, 13, 12).double()
    u = complex_rotation(layer.query_key(x).unflatten(-1, (4, 6)).transpose(1, 2))
    phi = (u / u.norm(dim=-1, keepdim=True)).unflatten(1, (2, 2))
    e, r = (phi @ layer.directions).unbind(1)
    heads = layer.merge(torch.cat([e, r], dim=-1))
    expected = layer.out(heads.transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x, x, None).tokens, expected)


@pytest.mark.parametrize("causal", [False, True])
def test_rotary_primal_with_padding_is_that_of_the_real_tokens_in_tokens_and_loss(causal):
    layer, x = build(Primal, rotary=True, causal=causal), torch.randn(1, 13, 12).double()
    mask = torch.arange(13)[None] % 3 > 0
    real = x[:, mask[0]]
    (padded, losses), (expected, others) = layer(x, x, mask), layer(real, real, None)
    torch.testing.assert_close(padded[:, mask[0]], expected)
    torch.testing.assert_close(losses["ksvd"], others["ksvd"])
