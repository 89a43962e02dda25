"""Computing again in the backward pass equals the definition, and takes less memory."""

from collections import UserList
from types import SimpleNamespace

import pytest
import torch
from torch.func import functional_call

import zoo
from zoo import recompute
from zoo import spans as spans_module
from zoo.kernels import feature_sum
from zoo.variants import variants

LEAN = ["cosformer", "cosine", "linear", "performer"]
CHOSEN = ["flowformer", "gated-linear", "local", "longformer", "reformer", "retention"]
SPANNED = sorted(n for n in variants.names() if getattr(variants.find(n), "spans", 0))


def record(monkeypatch, module):
    """The list of the inputs of all that the module computes again from now on."""
    seen, once = UserList(), recompute.recomputed  # no list: the checks look at lists
    monkeypatch.setattr(module, "recomputed", lambda *call: seen.append(call[1:]) or once(*call))
    return seen


def in_pieces(monkeypatch, name, n, _=0):
    """Process 111 tokens at a time."""
    whole, processed = feature_sum.parts_of, UserList()

    def recorded(x, features):
        for part in whole(x, features):
            processed.append(part)
            yield part

    features = {"cosformer": 12, "performer": 256}.get(name, 6)
    monkeypatch.setattr(feature_sum, "LARGE", 1)
    monkeypatch.setattr(feature_sum, "PART_FEATURES", 37 * 3 * 2 * features)
    monkeypatch.setattr(feature_sum, "parts_of", recorded)
    return processed, lambda seen: (
        # Keys and queries, forward and backward; two samples of 50 tokens, and tokens of one.
        len(seen) >= 4 * -(-3 * n // 111)
        and (slice(0, min(3, 111 // n) or 1), slice(0, min(n, 111))) in seen
    )


def by_sample(monkeypatch, name, n, _=0):
    monkeypatch.setattr(recompute, "LARGE", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    # The last is not computed again; two parts of three samples are of two and one. Local
    # attention stores little and computes nothing again.
    again = {"local": 0, "gated-linear": 1, "retention": 1}.get(name, 2)
    return record(monkeypatch, recompute), lambda seen: len(seen) == again


def in_spans(monkeypatch, name, n, span):
    monkeypatch.setattr(spans_module, "span_of", lambda *_: span)
    spans = variants.find(name).spans
    first = n % span or span if isinstance(spans, float) and spans % 1 else span

    def expected(seen):
        # The last span is not computed again, and a single one is the whole.
        return len(seen) == -(-n // span) - 1 and {x.shape[1] for x, *_ in seen[:1]} <= {first}

    return record(monkeypatch, spans_module), expected


def results(layer, x, context=None, mask=None):
    """Outputs at real tokens, gradients of a weighted sum of them, and the next random number."""
    torch.manual_seed(4)
    tokens, losses = layer(x, context, mask)
    real = torch.ones(tokens.shape[:2], dtype=torch.bool)
    real = real if mask is None or context is not None else mask
    weights = torch.randn(tokens.shape, generator=torch.Generator().manual_seed(7)).to(tokens)
    total = (tokens * weights)[real].sum() + sum(losses.values())
    return [tokens[real], *torch.autograd.grad(total, [x, *layer.parameters()]), torch.rand(1)]


def masks(n):
    mask = torch.rand(3, n) < 0.6
    mask[1] = False
    return mask


CASES = [
    *((in_pieces, name, n, padded, 0) for name in LEAN for n, padded in ((50, True), (300, False))),
    *((by_sample, name, n, padded, 0) for n, padded in ((63, True), (1, False)) for name in CHOSEN),
    *((in_spans, name, 63, True, 17) for name in SPANNED),
    (in_spans, SPANNED[0], 100, False, 100),  # one span: nothing is computed again
]  # fmt: skip


@pytest.mark.slow_after(40)
@pytest.mark.parametrize(("kind", "name", "n", "padded", "span"), CASES)
def test_outputs_and_gradients_are_those_of_the_definition(
    kind, name, n, padded, span, monkeypatch
):
    spanned = kind is in_spans
    sizes = {"dim": 12, "heads": 2, "max_len": n, "causal": spanned, "short_conv": 3 * spanned}
    layer = zoo.create(name, **sizes).double()
    x = torch.randn(3, n, 12, dtype=torch.float64).requires_grad_()
    mask = masks(n) if padded else None
    inputs = [(x, None, mask)]
    if kind is in_pieces:
        if padded and layer.traits.cross:
            inputs += [(x[:, : n // 2], x.detach(), mask)]
        with torch.no_grad():  # tokens without a direction
            x[:, ::7] *= 1e-20
            layer.query.bias.zero_()
            layer.context.bias.zero_()
    with monkeypatch.context() as patch:
        patch.setattr(spans_module, "span_of", lambda *_: 0)
        expected = [results(layer, *each) for each in inputs]
    seen, as_many = kind(monkeypatch, name, n, span)
    torch.testing.assert_close(
        [results(layer, *each) for each in inputs], expected, rtol=1e-9, atol=1e-9
    )
    assert as_many(seen)


@pytest.mark.parametrize("name", ["retention", "delta"])
def test_gradients_are_of_replaced_parameters(name, monkeypatch):
    layer = zoo.create(name, dim=12, heads=2, max_len=20, causal=name == "delta").double()
    x, named = torch.randn(5, 20, 12, dtype=torch.float64), layer.named_parameters()
    replaced = {key: torch.randn_like(value).requires_grad_() for key, value in named}

    def gradients():
        tokens = functional_call(layer, replaced, (x,)).tokens
        return torch.autograd.grad(tokens.square().sum(), [*replaced.values()])

    expected = gradients()
    seen, _ = (in_spans if name == "delta" else by_sample)(monkeypatch, name, 20, 6)
    for threads, parts in ((1, 3), (8, 4)):  # each thread has a head
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        torch.testing.assert_close(gradients(), expected, rtol=1e-9, atol=1e-9)
        assert len(seen) == 3 if name == "delta" else [len(x) for (x,) in seen] == [parts]
        seen.clear()
    with torch.no_grad():
        layer(x)
    assert not seen


@pytest.mark.parametrize("name", [name for name in CHOSEN if variants.find(name).drops_weights])
def test_samples_have_different_dropout(name, monkeypatch):
    by_sample(monkeypatch, name, 63)
    layer = zoo.create(name, dim=12, heads=2, max_len=63, dropout=0.5)
    first, second = layer(torch.randn(1, 63, 12).expand(2, -1, -1)).tokens
    assert not torch.allclose(first, second)


@pytest.mark.parametrize(("spans", "n", "expected"), [
    (4, 512, 512), (4, 1024, 512), (4, 2049, 1024), (4, 4096, 1024), (8, 4096, 512), (0, 99, 0),
    (8 / 3, 600, 512), (8 / 3, 4096, 1536), (8 / 3, 4097, 2048),
])  # fmt: skip
def test_spans_are_whole_blocks_and_about_as_many_for_every_long_input(spans, n, expected):
    assert spans_module.span_of(SimpleNamespace(spans=spans), torch.empty(1, n, 1)) == expected


def test_a_projection_that_is_drawn_in_each_forward_has_no_spans():
    sizes = {"dim": 8, "heads": 2, "max_len": 9, "causal": True}
    spans = [zoo.create("performer", **sizes, redraw=redraw).spans for redraw in (False, True)]
    assert spans[0] > spans[1] == 0
