"""What is computed sample by sample, and again in the backward pass, equals its definition."""

import pytest
import torch
from torch.func import functional_call

import zoo
from tests.zoo.peaks import softmax_peak, training_peak
from zoo import recompute
from zoo.conformance import CHECKS, configurations, run
from zoo.variants import variants

BOUNDS = {
    "flowformer": 1, "gated-linear": 1, "local": 1, "longformer": 2, "reformer": 2, "retention": 1,
}  # fmt: skip
"""The variants that are computed so; bounds of their memory over that of fused softmax."""

CHOSEN = sorted(BOUNDS)


@pytest.fixture
def samples(monkeypatch):
    """Call to compute short inputs sample by sample; returns the list of all calls since."""
    seen, once = [], recompute.recomputed

    def recorded(function, *inputs):
        seen.append(inputs)
        return once(function, *inputs)

    def use():
        monkeypatch.setattr(recompute, "LARGE", 1)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
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


@pytest.mark.parametrize(("n", "padded"), [(1, False), (63, True), (300, False)])
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
    # The last is not computed again; two parts of three samples are of two and one. Local
    # attention stores little and computes nothing again.
    again = {"local": 0, "gated-linear": 1, "retention": 1}
    assert len(seen) == again.get(name, 2)


@pytest.mark.parametrize("name", ["flowformer", "retention"])
def test_gradients_are_those_at_replaced_parameters(name, samples):
    layer = zoo.create(name, dim=12, heads=2, max_len=20).double()
    x = torch.randn(3, 20, 12, dtype=torch.float64)
    replaced = {
        key: torch.randn_like(value).requires_grad_() for key, value in layer.named_parameters()
    }

    def gradients():
        tokens = functional_call(layer, replaced, (x,)).tokens
        return torch.autograd.grad(tokens.square().sum(), list(replaced.values()))

    expected, seen = gradients(), samples()
    torch.testing.assert_close(gradients(), expected, rtol=1e-9, atol=1e-9)
    assert seen


def test_every_thread_has_a_head(samples, monkeypatch):
    seen, layer = samples(), zoo.create("retention", dim=12, heads=2, max_len=20)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    layer(torch.randn(3, 20, 12))
    assert [len(x) for (x,) in seen] == [2]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    layer(torch.randn(5, 20, 12))
    assert [len(x) for (x,) in seen[1:]] == [3]


@pytest.mark.parametrize("name", ["local", "longformer", "reformer"])
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
@pytest.mark.parametrize("name", ["longformer", "retention"])
def test_checks_of_more_than_values_pass_sample_by_sample(name, samples):
    seen = samples()
    # The others follow from outputs and gradients, which are those of the definition.
    chosen = {"large inputs", "seeded determinism", "vmap", "side-effect-free forward"}
    configuration = configurations(name, variants.find(name))[0]
    outcomes = [run(check, configuration) for check in CHECKS if check.name in chosen]
    assert len(outcomes) == len(chosen) and seen
    assert not [outcome for outcome in outcomes if not outcome.passed]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bound"), BOUNDS.items())
def test_memory_of_training_is_within_its_bound(name, bound):
    assert training_peak(name) <= bound * softmax_peak()
