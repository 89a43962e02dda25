"""The inputs of attention layers, and the logits of softmax on them."""

import pytest
import torch

from harness.data import restore
from harness.layer_inputs import inputs_of_layers, scale_logits
from harness.model import build_model
from zoo.library import create


def test_the_examples_of_dev_are_evenly_spaced(tiny, dev):
    model = build_model(tiny(), restore(tiny()).task).eval()
    for samples, expected in ((1, [0]), (3, [0, 7, 15]), (99, [*range(16)])):
        calls = inputs_of_layers(model, dev, samples)[0]
        lengths = [int(call.mask.sum()) for call in calls]
        assert lengths == [int(dev.example_lengths()[example].sum()) for example in expected]


def test_logits_have_the_deviation_that_is_requested():
    torch.manual_seed(0)
    layer, x = create("softmax", dim=8, heads=2, max_len=5), torch.randn(3, 5, 8)
    torch.nn.init.normal_(layer.query.bias)
    scale_logits(layer, x, 2.5)
    q, k = layer.query(x), layer.context(x)[..., :8]
    scores = torch.stack([q[..., i : i + 4] @ k[..., i : i + 4].mT / 2 for i in (0, 4)])
    assert scores.std().item() == pytest.approx(2.5, rel=1e-4)
