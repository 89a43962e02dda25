"""A convolution over tokens as a product with a band, compared with that of PyTorch."""

import pytest
import torch
from torch.nn import functional as F

from zoo.kernels.depthwise import BLOCK, convolve


def naive(v, taps):
    weight = taps[:, None, :, None]
    return F.conv2d(v, weight, padding=(taps.shape[1] // 2, 0), groups=len(taps))


@pytest.mark.parametrize(
    ("n", "taps"),
    [
        (1, 3), (63, 1), (63, 35), (BLOCK, 3), (BLOCK + 1, 3), (BLOCK, 2 * BLOCK + 1), (200, 35),
        (200, 2 * BLOCK + 1),
    ],
)  # fmt: skip
def test_a_band_equals_a_grouped_convolution(n, taps):
    v = torch.randn(2, 3, n, 5, dtype=torch.float64, requires_grad=True)
    kernel = torch.randn(3, taps, dtype=torch.float64, requires_grad=True)
    expected, actual = naive(v, kernel), convolve(v, kernel)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(
        torch.autograd.grad(actual.square().sum(), [v, kernel]),
        torch.autograd.grad(expected.square().sum(), [v, kernel]),
    )
