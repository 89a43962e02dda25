"""Convolution: each channel of the values with its own taps, over real tokens."""

import pytest
import torch

from tests.zoo.oracle import DIM, FORMS, HEADS, PADDED, agree, by_sample, draw, ragged, valid
from zoo.contract import Size
from zoo.variants.conv import Convolution
from zoo.variants.softmax import Softmax


def conv(causal: bool = False, dim: int = DIM, **options) -> Convolution:
    size = Size(dim=dim, heads=HEADS, max_len=1000, causal=causal, dropout=0.0)
    return Convolution(size, **options).double()


def formula(layer):
    taps, causal = layer.taps, layer.size.causal
    first = 1 - len(taps) if causal else -(len(taps) // 2)

    def of(x):
        values = layer.value(x)
        mixed = torch.zeros_like(values)
        for i in range(len(x)):
            for t in range(len(taps)):
                if 0 <= i + first + t < len(x):
                    mixed[i] = mixed[i] + taps[t] * values[i + first + t]
        return layer.out(mixed)

    return of


@FORMS
@PADDED
@pytest.mark.parametrize(("n", "taps"), [(1, 16), (7, 16), (40, 16), (40, 3), (5, 1)])
def test_output_and_gradients_are_those_of_the_formula(n, taps, padded, causal):
    layer, x = conv(causal, taps=taps), draw(n)
    mask = ragged(n) if padded else None
    out = valid(layer(x, x, mask).tokens, mask)
    agree(out, by_sample(formula(layer), x, mask), x, *layer.parameters(), slopes=(1e-9, 1e-11))


@pytest.mark.parametrize("dim", [64, 128])
def test_a_layer_has_the_parameters_of_softmax_within_two_percent(dim):
    layer = conv(dim=dim)
    ours, softmax = (
        sum(p.numel() for p in each.parameters()) for each in (layer, Softmax(layer.size))
    )
    assert 0.98 * softmax < ours <= softmax
