"""The short convolution behind projections."""

import pytest
import torch
from torch.nn import functional as F

from tests.zoo.oracle import create
from zoo.contract import Unsupported
from zoo.projection import ShortConvolution
from zoo.size import Size


@pytest.mark.parametrize("causal", [True, False])
def test_a_short_convolution_is_the_sum_of_neighbours_and_a_silu(causal):
    size = Size(dim=6, heads=1, max_len=20, causal=causal, dropout=0.0, short_conv=4)
    convolution, u = ShortConvolution(size, 5).double(), torch.randn(2, 9, 5).double()
    # Causal: 4 taps, the last one at the token itself; else 5, the middle one there.
    taps, here = convolution.taps, 3 if causal else 2
    assert taps.shape == (4 if causal else 5, 5)
    for i in range(9):
        reached = [(t, i + t - here) for t in range(len(taps)) if 0 <= i + t - here < 9]
        expected = F.silu(sum(taps[t] * u[:, j] for t, j in reached))
        torch.testing.assert_close(convolution(u)[:, i], expected)


def test_some_channels_have_no_convolution_and_the_others_no_activation():
    size = Size(dim=6, heads=2, max_len=9, causal=True, dropout=0.0, short_conv=4)
    convolution, u = ShortConvolution(size, 5, plain=2, activation=False), torch.randn(2, 9, 5)
    out = convolution(u)
    assert torch.equal(out[..., 3:], u[..., 3:]) and convolution.taps.shape == (4, 3)
    reached = sum(convolution.taps[t] * u[:, 2 + t, :3] for t in range(4))
    torch.testing.assert_close(out[:, 5, :3], reached)


def test_without_taps_a_convolution_is_the_identity_and_with_new_ones_near_it():
    options, u = {"dim": 6, "heads": 1, "max_len": 20, "dropout": 0.0}, torch.randn(2, 9, 5)
    assert ShortConvolution(Size(**options, causal=True), 5)(u) is u
    for causal in (True, False):
        convolution = ShortConvolution(Size(**options, causal=causal, short_conv=4), 5)
        # At most 5 taps, each off by 0.05 at most; the slope of a SiLU is at most 1.1.
        taps = convolution.taps.detach()
        assert (convolution(u) - F.silu(u)).abs().max() < 1.1 * 5 * 0.05 * u.abs().max()
        assert taps.unique().numel() == taps.numel()


@pytest.mark.parametrize("name", ["softmax", "primal", "primal-moments"])
def test_cross_attention_has_no_short_convolution(name):
    layer = create(name, dim=16, max_len=64, short_conv=4)
    with pytest.raises(Unsupported, match="with short_conv=4 attends to its input only"):
        layer(*torch.randn(2, 2, 9, 16).double())
