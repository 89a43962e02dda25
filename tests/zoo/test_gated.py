"""What retention and gated linear attention share: chunks and precision."""

import pytest
import torch

from tests.zoo.oracle import DIM, FORMS, draw, gated, projections_alone_are_halved, ragged
from zoo.kernels import eager
from zoo.variants.gated_linear import GatedLinear
from zoo.variants.retention import Retention


@FORMS
@pytest.mark.parametrize(
    ("variant", "chunk"),
    [
        *((GatedLinear, chunk) for chunk in (1, 2, 128)),
        *((Retention, chunk) for chunk in (1, 7, 99, 1000)),
    ],
)
def test_the_size_of_a_chunk_does_not_matter(variant, chunk, causal, monkeypatch):
    monkeypatch.setattr(eager, "on_cpu", lambda x: False)
    layer, x, mask = gated(variant, causal, chunk=16), draw(100), ragged(100)
    expected = layer(x, x, mask).tokens
    layer.chunk = chunk
    torch.testing.assert_close(layer(x, x, mask).tokens, expected, rtol=1e-9, atol=1e-11)


@FORMS
@pytest.mark.parametrize("variant", [GatedLinear, Retention])
def test_under_autocast_only_projections_run_in_half_precision(variant, causal):
    layer, x = gated(variant, causal, chunk=16).float(), torch.randn(2, 40, DIM)
    projections_alone_are_halved(lambda: layer(x, x, ragged(40)))
