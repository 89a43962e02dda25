"""No attention: each token is mapped by two projections, independently of the others."""

import pytest
import torch

from tests.zoo.oracle import DIM, FORMS, HEADS, PADDED, agree, draw
from zoo.contract import Size
from zoo.variants.none import NoAttention


def none(causal: bool = False) -> NoAttention:
    size = Size(dim=DIM, heads=HEADS, max_len=1000, causal=causal, dropout=0.0)
    return NoAttention(size).double()


@FORMS
@PADDED
@pytest.mark.parametrize("n", [1, 63])
def test_output_and_gradients_are_those_of_two_affine_maps(n, padded, causal):
    layer, x = none(causal), draw(n)
    mask = torch.rand(2, n) < 0.7 if padded else None
    weights = dict(layer.named_parameters())
    values = x @ weights["value.weight"].T + weights["value.bias"]
    expected = values @ weights["out.weight"].T + weights["out.bias"]
    out, given = layer(x, x, mask).tokens, (x, *weights.values())
    agree(out, expected, *given, slopes=(1e-9, 1e-11))


@FORMS
def test_no_token_changes_the_output_of_another(causal):
    layer, x = none(causal), torch.randn(2, 9, DIM).double()
    changed = x.clone()
    changed[:, 4] = torch.randn(2, DIM)
    changed_at = (layer(changed, changed, None).tokens != layer(x, x, None).tokens).any(-1)
    assert changed_at.nonzero()[:, 1].tolist() == [4, 4]


def test_there_are_no_parameters_but_those_of_the_two_projections():
    assert sum(parameter.numel() for parameter in none().parameters()) == 2 * DIM * (DIM + 1)
