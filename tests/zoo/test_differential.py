"""Both versions of differential attention against their formulas."""

from functools import partial
from math import exp

import pytest
import torch

import zoo
from tests.zoo.oracle import (
    DIM,
    FORMS,
    HEADS,
    LENGTHS,
    PADDED,
    WIDTH,
    agree,
    by_sample,
    draw,
    ragged,
    softmax_attention,
    valid,
)
from zoo.kernels.rotary import apply_rotary
from zoo.registry import UserError


def differential(causal: bool, **options) -> zoo.Attention:
    sizes = {"dim": DIM, "heads": HEADS, "max_len": 1000, "causal": causal}
    return zoo.create("differential", **sizes, **options).double()


def weights(q, k, causal, rotary=False):
    """The softmax map of (n, e) queries and keys."""
    if rotary:
        q, k = (apply_rotary(part[None, None])[0, 0] for part in (q, k))
    scores = q @ k.T / q.shape[1] ** 0.5
    later = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return (scores.masked_fill(later, -torch.inf) if causal else scores).softmax(1)


def version_2(layer, x):
    """Without padding, head by head."""
    first, second = layer.query(x).chunk(2, -1)
    k, v = layer.context(x).chunk(2, -1)
    factor, heads = 1 / (1 + (-layer.gate(x)).exp()), []
    softmax = partial(weights, causal=layer.size.causal, rotary=layer.size.rotary)
    for h, part in enumerate(torch.arange(DIM).chunk(HEADS)):
        maps = [softmax(q[:, part], k[:, part]) for q in (first, second)]
        heads.append((maps[0] - factor[:, h, None] * maps[1]) @ v[:, part])
    return layer.out(torch.cat(heads, 1))


def version_1(layer, x, depth):
    """Without padding; heads 2 i and 2 i + 1 of half the width give head i."""
    q, k = layer.query(x), layer.context(x)[:, :DIM]
    v, half, heads = layer.context(x)[:, DIM:], WIDTH // 2, []
    (l1, l2), (m1, m2) = layer.vectors
    at_first = 0.8 - 0.6 * exp(-0.3 * depth)
    factor = (l1 @ m1).exp() - (l2 @ m2).exp() + at_first
    softmax = partial(weights, causal=layer.size.causal, rotary=layer.size.rotary)
    for h in range(HEADS):
        one, two = (slice(start, start + half) for start in (h * WIDTH, h * WIDTH + half))
        map_1, map_2 = (softmax(q[:, part], k[:, part]) for part in (one, two))
        y = (map_1 - factor * map_2) @ v[:, h * WIDTH : (h + 1) * WIDTH]
        y = y / (y.square().mean(1, keepdim=True) + 1e-5).sqrt()
        heads.append((1 - at_first) * layer.norm.weight * y)
    return layer.out(torch.cat(heads, 1))


VERSIONS = pytest.mark.parametrize(
    ("options", "formula"),
    [({}, version_2), ({"version": "v1", "depth": 3}, partial(version_1, depth=3))],
    ids=["version 2", "version 1"],
)


@VERSIONS
@FORMS
@PADDED
@LENGTHS
def test_output_and_gradients_are_those_of_the_formula(n, padded, causal, options, formula):
    layer, x, mask = differential(causal, **options), draw(n), ragged(n) if padded else None
    out = valid(layer(x, mask=mask).tokens, mask)
    expected = by_sample(partial(formula, layer), x, mask)
    agree(out, expected, x, *layer.parameters(), slopes=(1e-8, 1e-11))


@VERSIONS
def test_each_map_has_rotary_positions_of_its_queries_and_keys(options, formula):
    layer, x, mask = differential(True, rotary=True, **options), draw(40), ragged(40)
    expected = by_sample(partial(formula, layer), x, mask)
    torch.testing.assert_close(valid(layer(x, mask=mask).tokens, mask), expected)


@FORMS
def test_a_factor_of_zero_leaves_the_softmax_map(causal):
    layer, x = differential(causal), draw(30)
    with torch.no_grad():
        layer.gate.bias.fill_(-1e3)
    q, k, v = (
        part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        for part in (layer.query(x)[..., :DIM], *layer.context(x).chunk(2, -1))
    )
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    assert causal or torch.allclose(expected, softmax_attention(q, k, v))
    out = layer.out(expected.transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x).tokens, out, rtol=0, atol=1e-15)


def test_the_matrix_is_the_difference_of_both_maps():
    layer, x, mask = differential(True), draw(30), ragged(30)
    v = layer.context(x)[..., DIM:].unflatten(-1, (HEADS, -1)).transpose(1, 2)
    product = layer.out((layer.matrix(x, x, mask) @ v).transpose(1, 2).flatten(-2))
    torch.testing.assert_close(product[mask], layer(x, mask=mask).tokens[mask])


def test_version_1_needs_heads_of_even_width():
    with pytest.raises(UserError, match="dim=6 over heads=2 leaves 3; give an even width"):
        zoo.create("differential", dim=6, heads=2, max_len=9, version="v1")
