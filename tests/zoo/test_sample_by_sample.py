"""A mechanism computed sample by sample, and again in the backward pass, equals its definition."""

import pytest
import torch

import zoo
from tests.zoo.peaks import softmax_peak, training_peak
from zoo import recompute
from zoo.conformance import CHECKS, configurations, run
from zoo.variants import variants

CHOSEN = ["longformer", "reformer"]


@pytest.fixture
def samples(monkeypatch):
    """Call to compute short inputs sample by sample; returns the list of all calls since."""
    seen, once = [], recompute.recomputed

    def recorded(function, *inputs):
        seen.append(inputs)
        return once(function, *inputs)

    def use():
        monkeypatch.setattr(recompute, "LARGE", 1)
        monkeypatch.setattr(recompute, "recomputed", recorded)
        return seen

    return use


def results(layer, x, mask):
    """Outputs at real tokens, gradients, and the next random number."""
    torch.manual_seed(4)
    tokens = layer(x, mask=mask).tokens
    weights = torch.randn(tokens.shape, generator=torch.Generator().manual_seed(7)).to(tokens)
    gradients = torch.autograd.grad((tokens * weights).sum(), [x, *layer.parameters()])
    return [tokens, *gradients, torch.rand(1)]


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("n", [1, 63, 100, 300])
@pytest.mark.parametrize("name", CHOSEN)
def test_outputs_and_gradients_are_those_of_the_definition(name, n, padded, samples):
    layer = zoo.create(name, dim=12, heads=2, max_len=n).double()
    x = torch.randn(3, n, 12, dtype=torch.float64).requires_grad_()
    mask = None
    if padded:
        mask = torch.rand(3, n) < 0.6
        mask[1] = False
    expected = results(layer, x, mask)
    seen = samples()
    torch.testing.assert_close(results(layer, x, mask), expected, rtol=1e-9, atol=1e-9)
    assert len(seen) == 3


@pytest.mark.parametrize("name", CHOSEN)
def test_samples_have_different_dropout(name, samples):
    samples()
    layer = zoo.create(name, dim=12, heads=2, max_len=63, dropout=0.5)
    first, second = layer(torch.randn(1, 63, 12).expand(2, -1, -1)).tokens
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("name", CHOSEN)
def test_evaluation_computes_the_whole_batch_once(name, samples):
    seen, layer = samples(), zoo.create(name, dim=12, heads=2, max_len=63).eval()
    with torch.no_grad():
        layer(torch.randn(3, 63, 12))
    assert not seen


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOSEN)
def test_every_check_passes_sample_by_sample(name, samples):
    seen = samples()
    chosen = {
        "lengths", "large inputs", "gradients", "fully masked input", "batch independence",
        "seeded determinism", "vmap", "side-effect-free forward",
    }  # fmt: skip
    configuration = configurations(name, variants.find(name))[0]
    outcomes = [run(check, configuration) for check in CHECKS if check.name in chosen]
    assert len(outcomes) == len(chosen) and seen
    assert not [outcome for outcome in outcomes if not outcome.passed]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOSEN)
def test_training_takes_at_most_twice_the_memory_of_fused_softmax(name):
    assert training_peak(name) <= 2 * softmax_peak()
