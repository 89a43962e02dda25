"""A convolution over tokens as a product with a band, held against PyTorch's own."""

import pytest
import torch
from torch.nn import functional as F

from zoo.kernels.depthwise import BLOCK, convolve


def naive(v, taps):
    weight = taps[:, None, :, None]
    return F.conv2d(v, weight, padding=(taps.shape[1] // 2, 0), groups=len(taps))


@pytest.mark.parametrize("taps", [1, 3, 35, 2 * BLOCK + 1])
@pytest.mark.parametrize("n", [1, 63, BLOCK, BLOCK + 1, 200])
def test_a_band_does_what_a_grouped_convolution_does(n, taps):
    v = torch.randn(2, 3, n, 5, dtype=torch.float64, requires_grad=True)
    kernel = torch.randn(3, taps, dtype=torch.float64, requires_grad=True)
    expected, found = naive(v, kernel), convolve(v, kernel)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found.square().sum(), [v, kernel]),
        torch.autograd.grad(expected.square().sum(), [v, kernel]),
    )
