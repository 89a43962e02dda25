"""Window attention with sinks against its formula."""

import pytest
import torch

import zoo
from tests.zoo.oracle import DIM, FORMS, HEADS, PADDED, agree, qkv, ragged, valid


def sinks(causal: bool, **options) -> zoo.Attention:
    sizes = {"dim": DIM, "heads": HEADS, "max_len": 1000, "causal": causal}
    layer = zoo.create("sinks", **sizes, **options).double()
    if layer.sink is not None:
        torch.nn.init.normal_(layer.sink)
    return layer


def by_the_formula(layer, q, k, v, mask):
    """All n x n weights, one sample at a time with padded tokens removed; zero at padded tokens."""
    out = torch.zeros_like(q)
    for b in range(q.shape[0]):
        real = torch.arange(q.shape[2]) if mask is None else mask[b].nonzero()[:, 0]
        rank = torch.arange(len(real))
        distance = rank[:, None] - rank
        visible = (distance.abs() <= layer.window) | (rank < layer.tokens)
        visible = visible & (distance >= 0) if layer.size.causal else visible
        scores = (q[b][:, real] @ k[b][:, real].mT / q.shape[-1] ** 0.5).exp() * visible
        total = scores.sum(-1, keepdim=True)
        if layer.sink is not None:
            total = total + layer.sink.exp()[:, None, None]
        out[b, :, real] = scores / total @ v[b][:, real]
    return out


OPTIONS = pytest.mark.parametrize(
    "options",
    [
        {"window": 7},
        {"window": 16, "tokens": 0, "learned": True},
        {"window": 64, "tokens": 9, "learned": True},
    ],
    ids=["first tokens", "learned logit", "both"],
)


@OPTIONS
@FORMS
@PADDED
@pytest.mark.parametrize("n", [1, 3, 63, 100, pytest.param(1000, marks=pytest.mark.slow)])
def test_output_and_gradients_are_those_of_the_formula(n, padded, causal, options):
    layer, inputs, mask = sinks(causal, **options), qkv(n), ragged(n) if padded else None
    out, expected = valid(layer.attend(*inputs, mask), mask), by_the_formula(layer, *inputs, mask)
    logit = [] if layer.sink is None else [layer.sink]
    agree(out, expected, *inputs, *logit)


@OPTIONS
def test_steps_equal_forward_from_the_first_token_on(options):
    layer = sinks(True, **options).eval()
    x, outputs = torch.randn(2, 150, DIM).double(), []
    state = layer.start(2)
    for token in x.unbind(1):
        output, state = layer.step(token, state)
        outputs.append(output)
    torch.testing.assert_close(torch.stack(outputs, 1), layer(x).tokens)


@FORMS
def test_without_first_tokens_it_is_local_attention(causal):
    inputs, sizes = qkv(100), {"dim": DIM, "heads": HEADS, "max_len": 100, "causal": causal}
    local = zoo.create("local", **sizes, window=9)
    out = sinks(causal, window=9, tokens=0).attend(*inputs, None)
    assert torch.equal(out, local.attend(*inputs, None))


@FORMS
def test_a_logit_of_zero_is_one_more_key_and_value_of_zero(causal):
    q, k, v = qkv(50)
    layer = sinks(causal, window=50, learned=True)
    with torch.no_grad():
        layer.sink.zero_()
    allowed = torch.ones(50, 50, dtype=torch.bool)
    allowed = torch.nn.functional.pad(allowed.tril() if causal else allowed, (1, 0), value=True)
    k_0, v_0 = (torch.nn.functional.pad(part, (0, 0, 1, 0)) for part in (k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k_0, v_0, attn_mask=allowed)
    torch.testing.assert_close(layer.attend(q, k, v, None), expected)
