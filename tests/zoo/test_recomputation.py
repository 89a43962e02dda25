"""Computing again in the backward pass equals the definition, and takes less memory."""

from collections import UserList
from types import SimpleNamespace

import pytest
import torch
from torch.func import functional_call

import zoo
from zoo import recompute
from zoo import spans as spans_module
from zoo.conformance import checks_for, configurations, run
from zoo.kernels import eager, feature_sum
from zoo.variants import variants

LEAN = ["cosformer", "cosine", "linear", "performer"]


def results(layer, x, context=None, mask=None):
    """Outputs at real tokens, gradients of a weighted sum of them, and the next random number."""
    torch.manual_seed(4)
    tokens = layer(x, context, mask).tokens
    weights = torch.randn(tokens.shape, generator=torch.Generator().manual_seed(7)).to(tokens)
    gradients = torch.autograd.grad((tokens * weights).sum(), [x, *layer.parameters()])
    return [tokens, *gradients, torch.rand(1)]


def masks(n):
    mask = torch.rand(3, n) < 0.6
    mask[1] = False
    return mask


def gradients_of_replaced(layer, x):
    """A function that returns the gradients of other parameters, the same in each call."""
    named = layer.named_parameters()
    replaced = {key: torch.randn_like(value).requires_grad_() for key, value in named}

    def gradients():
        tokens = functional_call(layer, replaced, (x,)).tokens
        return torch.autograd.grad(tokens.square().sum(), list(replaced.values()))

    return gradients


@pytest.fixture
def pieces(monkeypatch):
    """Call with a variant of two heads to process 111 tokens at a time.

    It returns the list of all parts since.
    """
    whole = feature_sum.parts_of

    def use(name):
        processed = UserList()  # no list: the checks look at lists that functions hold

        def recorded(x, features):
            for part in whole(x, features):
                processed.append(part)
                yield part

        features = {"cosformer": 12, "performer": 256}.get(name, 6)
        monkeypatch.setattr(feature_sum, "LARGE", 1)
        monkeypatch.setattr(feature_sum, "PART_FEATURES", 37 * 3 * 2 * features)
        monkeypatch.setattr(feature_sum, "parts_of", recorded)
        return processed

    return use


@pytest.mark.parametrize(("n", "padded"), [(1, False), (50, True), (100, False), (300, True)])
@pytest.mark.parametrize("name", LEAN)
def test_outputs_and_gradients_are_those_of_the_definition(name, n, padded, pieces):
    layer = zoo.create(name, dim=12, heads=2, max_len=n).double()
    x = torch.randn(3, n, 12, dtype=torch.float64).requires_grad_()
    mask = masks(n) if padded else None
    inputs = [(x, None, mask)]
    if padded and layer.traits.cross:
        inputs += [(x[:, : n // 2], x.detach(), mask)]
    # Tokens without a direction.
    with torch.no_grad():
        x[:, ::7] *= 1e-20
        layer.query.bias.zero_()
        layer.context.bias.zero_()
    expected = [results(layer, *each) for each in inputs]
    seen = pieces(name)
    actual = [results(layer, *each) for each in inputs]
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)
    # Keys and queries, forward and backward; two samples of 50 tokens, and tokens of one of 300.
    assert len(seen) >= 4 * -(-3 * n // 111)
    assert (slice(0, min(3, 111 // n) or 1), slice(0, min(n, 111))) in seen


@pytest.mark.parametrize("name", LEAN)
def test_gradients_of_plain_operations_can_be_differentiated_again(name, pieces):
    layer = zoo.create(name, dim=4, heads=2, max_len=9).double()
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, 5:] = False
    x = (0.7 * torch.randn(2, 9, 4, dtype=torch.float64)).requires_grad_()
    seen = pieces(name)
    with eager.plain_operations():
        assert torch.autograd.gradgradcheck(
            lambda x: layer(x, mask=mask).tokens[mask], (x,), atol=1e-4, rtol=1e-3, fast_mode=True
        )
    assert not seen
    (slope,) = torch.autograd.grad(layer(x, mask=mask).tokens.sum(), x, create_graph=True)
    with pytest.raises(zoo.UserError, match="plain_operations"):
        torch.autograd.grad(slope.sum(), x)
    assert seen


CHOSEN = ["flowformer", "gated-linear", "local", "longformer", "reformer", "retention"]


@pytest.fixture
def record(monkeypatch):
    """Call with a module; returns the list of the inputs of all that it computes again since."""

    def use(module):
        seen, once = UserList(), recompute.recomputed
        monkeypatch.setattr(
            module, "recomputed", lambda *call: seen.append(call[1:]) or once(*call)
        )
        return seen

    return use


@pytest.fixture
def samples(monkeypatch, record):
    """Call to compute short inputs sample by sample; returns the list of all calls since."""

    def use():
        monkeypatch.setattr(recompute, "LARGE", 1)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
        return record(recompute)

    return use


@pytest.mark.slow_after(6)
@pytest.mark.parametrize(("n", "padded"), [(1, False), (63, True), (300, False)])
@pytest.mark.parametrize("name", CHOSEN)
def test_sample_by_sample_outputs_and_gradients_are_of_the_definition(name, n, padded, samples):
    layer = zoo.create(name, dim=12, heads=2, max_len=n).double()
    x = torch.randn(3, n, 12, dtype=torch.float64).requires_grad_()
    mask = masks(n) if padded else None
    expected = results(layer, x, mask=mask)
    seen = samples()
    torch.testing.assert_close(results(layer, x, mask=mask), expected, rtol=1e-9, atol=1e-9)
    # The last is not computed again; two parts of three samples are of two and one. Local
    # attention stores little and computes nothing again.
    again = {"local": 0, "gated-linear": 1, "retention": 1}
    assert len(seen) == again.get(name, 2)


def test_each_thread_has_a_head_and_gradients_are_of_replaced_parameters(samples, monkeypatch):
    layer = zoo.create("retention", dim=12, heads=2, max_len=20).double()
    gradients = gradients_of_replaced(layer, torch.randn(5, 20, 12, dtype=torch.float64))
    expected, seen = gradients(), samples()
    for threads, parts in ((1, [3]), (8, [4])):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        torch.testing.assert_close(gradients(), expected, rtol=1e-9, atol=1e-9)
        assert [len(x) for (x,) in seen] == parts
        seen.clear()


@pytest.mark.parametrize("name", CHOSEN)
def test_samples_have_different_dropout_and_evaluation_computes_the_whole_batch_once(name, samples):
    seen, layer = samples(), zoo.create(name, dim=12, heads=2, max_len=63)
    if layer.drops_weights:
        layer = zoo.create(name, dim=12, heads=2, max_len=63, dropout=0.5)
        first, second = layer(torch.randn(1, 63, 12).expand(2, -1, -1)).tokens
        assert not torch.allclose(first, second)
        seen.clear()
    with torch.no_grad():
        layer.eval()(torch.randn(3, 63, 12))
    assert not seen


SPANNED = sorted(n for n in variants.names() if getattr(variants.find(n), "spans", 0))


@pytest.fixture
def spans(monkeypatch, record):
    """Call with the tokens of a span; returns the inputs of spans computed again."""

    def use(span):
        monkeypatch.setattr(spans_module, "span_of", lambda *_: span)
        return record(spans_module)

    return use


@pytest.mark.slow_after(6)
@pytest.mark.parametrize(
    ("n", "span", "padded"), [(100, 100, False), (63, 17, True), (100, 9, False)]
)
@pytest.mark.parametrize("name", SPANNED)
def test_spans_have_the_outputs_and_gradients_of_the_whole(name, n, span, padded, spans):
    layer = zoo.create(name, dim=12, heads=2, max_len=n, causal=True, short_conv=3).double()
    x = torch.randn(3, n, 12, dtype=torch.float64).requires_grad_()
    mask = masks(n) if padded else None
    real = torch.ones(3, n, dtype=torch.bool) if mask is None else mask

    def of_real_tokens():
        tokens, losses = layer(x, mask=mask)
        weights = torch.randn(tokens.shape, generator=torch.Generator().manual_seed(7)).to(tokens)
        total = (tokens * weights)[real].sum() + sum(losses.values())
        return [tokens[real], *torch.autograd.grad(total, [x, *layer.parameters()])]

    spans(0)
    expected = of_real_tokens()
    seen = spans(span)
    torch.testing.assert_close(of_real_tokens(), expected, rtol=1e-9, atol=1e-11)
    # The last span is not computed again, and a single one is the whole.
    assert len(seen) == -(-n // span) - 1
    first = n % span or span if layer.spans % 1 else span
    assert {tokens.shape[1] for tokens, *_ in seen[:1]} <= {first}


@pytest.mark.parametrize("name", ["linear", "gated-delta", "gated-linear"])
def test_gradients_of_spans_are_the_same_with_a_graph_and_can_be_differentiated_once(name, spans):
    layer = zoo.create(name, dim=4, heads=2, max_len=7, causal=True).double()
    seen, x = spans(3), torch.randn(2, 7, 4, dtype=torch.float64).requires_grad_()
    slopes = [
        torch.autograd.grad(layer(x).tokens.square().sum(), x, create_graph=graph)[0]
        for graph in (False, True)
    ]
    torch.testing.assert_close(*slopes, rtol=1e-12, atol=1e-12)
    with pytest.raises(zoo.UserError, match="plain_operations"):
        torch.autograd.grad(slopes[1].sum(), x)
    assert seen


def test_spans_are_of_replaced_parameters_and_are_not_used_without_gradients(spans):
    layer = zoo.create("delta", dim=12, heads=2, max_len=20, causal=True).double()
    x = torch.randn(2, 20, 12, dtype=torch.float64)
    gradients = gradients_of_replaced(layer, x)
    expected, seen = gradients(), spans(6)
    torch.testing.assert_close(gradients(), expected, rtol=1e-9, atol=1e-9)
    assert len(seen) == 3
    with torch.no_grad():
        layer(x)
    assert len(seen) == 3


@pytest.mark.parametrize("options", [{}, {"trace": "data", "ksvd_mean": "sample"}])
@pytest.mark.parametrize("padded", [False, True])
def test_the_loss_of_spans_is_that_of_the_whole(options, padded, spans):
    sizes = {"dim": 12, "heads": 2, "max_len": 63, "causal": True}
    layer = zoo.create("primal-moments", **sizes, **options).double()
    x, mask = torch.randn(3, 63, 12, dtype=torch.float64), masks(63) if padded else None

    def loss_and_gradients():
        (loss,) = layer(x, mask=mask).losses.values()
        gradients = torch.autograd.grad(loss, [*layer.parameters()], allow_unused=True)
        return [loss, *(each for each in gradients if each is not None)]

    spans(0)
    expected = loss_and_gradients()
    assert spans(17) == [] and expected[0] > 0
    torch.testing.assert_close(loss_and_gradients(), expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(
    ("spans", "n", "expected"),
    [(4, 512, 512), (4, 1024, 512), (4, 2049, 1024), (4, 4096, 1024), (8, 4096, 512), (0, 99, 0),
     (8 / 3, 600, 512), (8 / 3, 4096, 1536), (8 / 3, 4097, 2048)],
)  # fmt: skip
def test_spans_are_whole_blocks_and_about_as_many_for_every_long_input(spans, n, expected):
    assert spans_module.span_of(SimpleNamespace(spans=spans), torch.empty(1, n, 1)) == expected


def test_a_projection_that_is_drawn_in_each_forward_has_no_spans():
    sizes = {"dim": 8, "heads": 2, "max_len": 9, "causal": True}
    spans = [zoo.create("performer", **sizes, redraw=redraw).spans for redraw in (False, True)]
    assert spans[0] > spans[1] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cosine", "linear", "longformer", "retention"])
def test_checks_of_more_than_values_pass(name, pieces, samples, no_type_checks):
    seen = pieces(name) if name in LEAN else samples()
    # The others follow from outputs and gradients, which are as by the definition.
    chosen = {"large inputs", "seeded determinism", "vmap", "side-effect-free forward"}
    chosen |= {"cosine": {"precisions", "compiles"}, "linear": {"precisions"}}.get(name, set())
    configuration = configurations(name, variants.find(name))[0]
    outcomes = [run(check, configuration) for check in checks_for(configuration, only=chosen)]
    assert len(outcomes) == len(chosen) and seen
    assert not [outcome for outcome in outcomes if not outcome.passed]
