"""Sums over features that are not stored equal those of the definition, forward and backward."""

import pytest
import torch

import zoo
from tests.zoo.peaks import softmax_peak, training_peak
from zoo.conformance import CHECKS, configurations, run
from zoo.kernels import feature_sum
from zoo.variants import variants

LEAN = ["cosformer", "cosine", "linear", "performer"]


def results(layer, x, context, mask):
    """Outputs at real tokens, and gradients of a sum in which every entry has its own weight."""
    tokens = layer(x, context, mask).tokens
    weights = torch.randn(tokens.shape, generator=torch.Generator().manual_seed(7)).to(tokens)
    inputs = [x, *layer.parameters()]
    return [tokens, *torch.autograd.grad((tokens * weights).sum(), inputs)]


def masks(n):
    mask = torch.rand(3, n) < 0.6
    mask[1] = False
    return mask


@pytest.fixture
def pieces(monkeypatch):
    """Call with a variant of two heads to process 111 tokens at a time.

    It returns the list of all parts since.
    """
    whole = feature_sum.parts

    def use(name):
        seen = []

        def recorded(x, features):
            for part in whole(x, features):
                seen.append(part)
                yield part

        features = {"cosformer": 12, "performer": 256}.get(name, 6)
        monkeypatch.setattr(feature_sum, "LARGE", 1)
        monkeypatch.setattr(feature_sum, "PART_FEATURES", 37 * 3 * 2 * features)
        monkeypatch.setattr(feature_sum, "parts", recorded)
        return seen

    return use


@pytest.mark.parametrize(("n", "padded"), [(1, False), (50, True), (100, False), (300, True)])
@pytest.mark.parametrize("name", LEAN)
def test_outputs_and_gradients_are_those_of_the_definition(name, n, padded, pieces):
    layer = zoo.create(name, dim=12, heads=2, max_len=n).double()
    x = torch.randn(3, n, 12, dtype=torch.float64).requires_grad_()
    mask = masks(n) if padded else None
    expected = results(layer, x, x, mask)
    seen = pieces(name)
    torch.testing.assert_close(results(layer, x, x, mask), expected, rtol=1e-9, atol=1e-9)
    # Keys and queries, forward and backward; two samples of 50 tokens, and tokens of one of 300.
    assert len(seen) >= 4 * -(-3 * n // 111)
    assert (slice(0, min(3, 111 // n) or 1), slice(0, min(n, 111))) in seen


@pytest.mark.parametrize("name", ["cosine", "linear", "performer"])
def test_cross_attention_is_that_of_the_definition(name, pieces):
    layer = zoo.create(name, dim=12, heads=2, max_len=100).double()
    x = torch.randn(3, 63, 12, dtype=torch.float64).requires_grad_()
    context, mask = torch.randn(3, 100, 12, dtype=torch.float64), masks(100)
    expected = results(layer, x, context, mask)
    pieces(name)
    torch.testing.assert_close(results(layer, x, context, mask), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_checks_of_more_than_values_pass_piece_by_piece(name, pieces, no_type_checks):
    seen = pieces(name)
    # Others follow from outputs and gradients, take the definition, or do not differentiate.
    chosen = {
        "precisions", "large inputs", "seeded determinism", "compiles", "vmap",
        "side-effect-free forward",
    }  # fmt: skip
    configuration = configurations(name, variants.find(name))[0]
    outcomes = [run(check, configuration) for check in CHECKS if check.name in chosen]
    assert len(outcomes) == len(chosen) and seen
    assert not [outcome for outcome in outcomes if not outcome.passed]


@pytest.mark.parametrize("name", LEAN)
def test_gradients_can_be_differentiated_again(name, pieces):
    layer = zoo.create(name, dim=4, heads=2, max_len=9).double()
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, 5:] = False
    x = (0.7 * torch.randn(2, 9, 4, dtype=torch.float64)).requires_grad_()
    pieces(name)
    assert torch.autograd.gradgradcheck(
        lambda x: layer(x, mask=mask).tokens[mask], (x,), atol=1e-4, rtol=1e-3, fast_mode=True
    )


@pytest.mark.parametrize("scale", [0.0, 1e-20])
@pytest.mark.parametrize("name", LEAN)
def test_tokens_without_a_direction_have_the_gradients_of_the_definition(name, scale, pieces):
    layer = zoo.create(name, dim=12, heads=2, max_len=63).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            if parameter.ndim == 1 and name != "cosine":
                parameter.zero_()
        layer.query.bias.zero_()
        layer.context.bias.zero_()
    x = torch.randn(3, 63, 12, dtype=torch.float64)
    x[:, ::7] *= scale
    x.requires_grad_()
    expected = results(layer, x, x, None)
    pieces(name)
    torch.testing.assert_close(results(layer, x, x, None), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEAN)
def test_training_takes_no_more_memory_than_fused_softmax(name):
    assert training_peak(name) <= softmax_peak()
