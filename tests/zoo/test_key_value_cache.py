"""Decoding with a cache of all keys and values."""

import pytest
import torch

import zoo
from tests.zoo.oracle import decode
from zoo.composition import Composition, build
from zoo.cost import state_bytes
from zoo.kernels.key_value_cache import RECENT
from zoo.variants import variants

DIM, HEADS = 8, 2
LENGTH = 2 * RECENT + 7

caching = pytest.mark.parametrize("name", ["softmax", "yoso"])


def layer_of(name: str, **options) -> zoo.Attention:
    return zoo.create(name, dim=DIM, heads=HEADS, max_len=LENGTH, causal=True, **options)


def test_every_causal_variant_decodes_or_its_published_package_cannot():
    without = {name for name in zoo.names(causal=True) if not variants.find(name).decodes()}
    assert without == {"performer-lib", *(name for name in without if name.startswith("fla-"))}


@caching
def test_a_step_copies_the_newest_tokens_alone(name):
    layer, x = layer_of(name), torch.randn(2, LENGTH, DIM)
    state, shared = layer.start(2), 0
    for token in x.unbind(1):
        before, (_, state) = state, layer.step(token, state)
        shared += all(old is new for old, new in zip(before[1:3], state[1:3], strict=True))
    assert shared == LENGTH - 2
    assert state_bytes(state) == 2 * 2 * LENGTH * DIM * 4 + 2 * 8


@caching
def test_a_state_can_be_continued_twice(name):
    layer, x = layer_of(name).eval(), torch.randn(2, 9, DIM)
    other = torch.cat([x[:, :5], torch.randn(2, 4, DIM)], 1)
    state = layer.start(2)
    for token in x[:, :5].unbind(1):
        _, state = layer.step(token, state)
    for tokens in (x, other):
        branch = state
        for token in tokens[:, 5:].unbind(1):
            output, branch = layer.step(token, branch)
        torch.testing.assert_close(output, layer(tokens).tokens[:, -1], rtol=1e-4, atol=1e-5)


def test_the_cache_has_the_dtype_of_autocast():
    layer = layer_of("softmax")
    with torch.autocast("cpu", torch.bfloat16):
        state = layer.start(1)
        _, state = layer.step(torch.randn(1, DIM), state)
    assert {part.dtype for part in state[1:]} == {torch.bfloat16}
    assert {part.dtype for part in layer.start(1)[1:]} == {torch.float32}


def test_layers_of_a_composition_decode():
    size = zoo.Size(dim=DIM, heads=HEADS, max_len=30, causal=True, dropout=0.0)
    stack = build(Composition.parse("softmax+primal").layers(3), size, {})
    layers = [zoo.EncoderLayer(attention, feed_forward=16).double().eval() for attention in stack]
    x = torch.randn(2, 30, DIM, dtype=torch.float64)
    expected = actual = x
    for layer in layers:
        expected, actual = layer(expected).tokens, decode(layer, actual)[0]
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)
