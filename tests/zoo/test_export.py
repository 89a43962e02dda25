"""Layers as graphs of `torch.export`; the check `export` covers every variant."""

import io

import pytest
import torch
from torch.export import Dim, export, load, save

import zoo
from zoo.kernels import eager
from zoo.kernels.chunk_states import by_doubling, by_pairs, chunk_states, mapped_states
from zoo.kernels.delta import pairs_by_channels, pairs_by_halves

DIM, LENGTH, MAX_LEN = 16, 150, 300
SIZES = {0: Dim("batch"), 1: Dim("length", max=MAX_LEN)}
"""Any batch and length, as `docs/library.md` declares them."""


# The sizes of an exported graph are no integers.
pytestmark = pytest.mark.usefixtures("no_type_checks")


def tokens(samples: int, n: int) -> torch.Tensor:
    return torch.randn(samples, n, DIM)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["primal", "softmax"])
def test_a_saved_encoder_layer_is_one_graph_for_any_batch_and_length(name):
    causal, file = name == "softmax", io.BytesIO()
    sizes = {"dim": DIM, "heads": 2, "max_len": MAX_LEN, "causal": causal, "rotary": causal}
    layer = zoo.TokensOnly(zoo.EncoderLayer.create(name, **sizes, feed_forward=24).eval())
    save(export(layer, (tokens(3, LENGTH),), dynamic_shapes={"x": SIZES}), file)
    file.seek(0)
    graph = load(file).module()
    for shape in ((1, 2), (5, 128), (2, MAX_LEN)):
        x = tokens(*shape)
        torch.testing.assert_close(graph(x), layer(x), rtol=1e-6, atol=1e-6)


def test_a_large_batch_is_exported_whole():
    layer = zoo.create("flowformer", dim=64, heads=1, max_len=MAX_LEN)
    x = torch.randn(64, MAX_LEN, 64)
    # Training splits this batch in parts; a graph has one call for each operation.
    graph = export(layer, (x,), dynamic_shapes={"x": SIZES})
    products = [node for node in graph.graph.nodes if node.name.startswith("sigmoid")]
    assert eager.on_cpu(x) and len(products) == 3
    torch.testing.assert_close(graph.module()(x).tokens, layer(x).tokens, rtol=1e-5, atol=1e-6)


def test_a_long_causal_layer_is_exported_whole():
    layer = zoo.create("linear", dim=DIM, heads=2, max_len=4096, causal=True)
    # Training computes this input in spans; their number is of one length.
    sizes, x = {0: SIZES[0], 1: Dim("length", max=4096)}, tokens(2, 1500)
    graph = export(layer, (tokens(3, LENGTH),), dynamic_shapes={"x": sizes}).module()
    torch.testing.assert_close(graph(x).tokens, layer(x).tokens, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 2, 7, 4, 1), (1, 2, 1, 1, 1)])
def test_states_by_pairs_are_those_of_the_recurrence(shape):
    update = torch.randn(3, 2, 7, 4, 5, dtype=torch.float64)
    decay = torch.rand(shape, dtype=torch.float64)
    torch.testing.assert_close(by_pairs(decay, update), chunk_states(decay, update))


@pytest.mark.parametrize("chunks", [1, 2, 7, 16])
def test_maps_by_doubling_are_those_of_the_recurrence(chunks):
    factor, update = torch.randn(2, 3, 2, chunks, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(by_doubling(factor, update), mapped_states(factor, update))


def test_pairs_by_channels_are_those_by_halves():
    rows, keys = torch.randn(2, 3, 2, 5, 8, 4), torch.randn(3, 2, 5, 8, 4)
    decay = -torch.rand(3, 2, 5, 8, 4)
    actual, expected = (pairs(rows, keys, decay) for pairs in (pairs_by_channels, pairs_by_halves))
    torch.testing.assert_close(actual, expected)
