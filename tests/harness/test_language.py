"""Language models: no output depends on the token that it predicts, or on a later one."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from harness.classifier import Classifier
from tasks.contract import Split
from tasks.language.windows import windows
from zoo.composition import Composition, build
from zoo.contract import Size

LENGTH, CHANGED = 12, 17
"""Of a window, and the first token that differs: the sixth of the second window."""

Make = Callable[[np.ndarray], Split]


def make(classes: np.ndarray) -> Split:
    return windows(classes, np.array([0]), LENGTH, 10, "perplexity")


def without_shift(classes: np.ndarray) -> Split:
    """The fault that the test must find: the input of a position is its own target."""
    split = make(classes)
    split.sequences.copy_(split.targets.clamp_min(0) + 1)
    return split


def model(attention: str) -> Classifier:
    torch.manual_seed(0)
    size = Size(dim=16, heads=2, max_len=LENGTH, causal=True, dropout=0.0)
    composition = Composition.parse(attention)
    layers = build(composition.layers(2), size, {})
    options = {"vocabulary": 10, "classes": 9, "sequences": 1, "feed_forward": 16, "head": 16}
    return Classifier(layers, **options, dropout=0.0).eval()


def differs(attention: str, make: Make) -> Tensor:
    """Where scores depend on the tokens from CHANGED on: True or False for each target."""
    one = np.random.default_rng(0).integers(0, 9, 30)
    other = one.copy()
    other[CHANGED:] = (one[CHANGED:] + 1) % 9
    built = model(attention)
    with torch.no_grad():
        scores = [
            built(split.gather(torch.arange(len(split))))[0].flatten(0, 1)[:30]
            for split in (make(one), make(other))
        ]
    return (scores[0] - scores[1]).abs().amax(-1) > 1e-6


@pytest.mark.parametrize("attention", ["softmax", "linear", "softmax+primal"])
def test_no_score_depends_on_its_target_or_on_later_tokens(attention):
    expected = [i > CHANGED for i in range(2 * LENGTH)] + [True] * (30 - 2 * LENGTH)
    assert differs(attention, make).tolist() == expected


def test_inputs_that_are_not_shifted_are_found():
    assert differs("softmax", without_shift)[CHANGED]
