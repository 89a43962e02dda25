"""Softmax attention against its formula, in simple cases, and in blocks of tiles."""

from functools import partial

import pytest
import torch

from tests.zoo.oracle import DIM, create, qkv, size
from zoo.cost import peak_bytes
from zoo.variants import moba
from zoo.variants.softmax import Softmax, naive, sdpa


@pytest.mark.parametrize("attend", [sdpa, naive])
def test_huge_scores_give_the_value_of_the_best_key(attend):
    q, k, v = (part.detach().float() for part in qkv(4, 9))
    out = attend(1e4 * q, 1e4 * k, v, None, False, 0.0)
    best = (q @ k.mT).argmax(-1)[..., None].expand_as(q)
    torch.testing.assert_close(out, v.gather(2, best))


@pytest.mark.parametrize("backend", ["auto", "sdpa", "naive"])
def test_the_backend_that_runs_on_a_cpu_is_named(backend):
    runs = backend.replace("auto", "sdpa")
    assert Softmax(size(), backend=backend).backend_for(torch.randn(2, 9, DIM)) == runs


layer_of = partial(create, "moba", dim=12, causal=True)


@pytest.mark.parametrize(("block", "topk", "n", "padded"), [
    (16, 2, 500, False), (16, 2, 300, True), (8, 3, 333, False), (5, 1, 63, False),
    (7, 4, 100, True), (9, 2, 9, False), (4, 9, 30, False),
])  # fmt: skip
def test_outputs_and_gradients_are_those_of_the_definition(block, topk, n, padded, monkeypatch):
    layer = layer_of(max_len=n, block=block, topk=topk)
    x = torch.randn(3, n, 12, dtype=torch.float64).requires_grad_()
    mask = torch.rand(3, n) < 0.7 if padded else torch.ones(3, n, dtype=torch.bool)
    weights, found = torch.randn(3, n, 12, dtype=torch.float64), []
    for dense in (10**9, 0):
        monkeypatch.setattr(moba, "DENSE", dense)
        tokens = layer(x, mask=mask if padded else None).tokens[mask]
        total = (tokens * weights[mask]).sum()
        found.append([tokens, *torch.autograd.grad(total, [x, *layer.parameters()])])
    torch.testing.assert_close(found[1], found[0], rtol=1e-10, atol=1e-12)


def test_dropped_weights_have_the_mean_of_all(monkeypatch):
    monkeypatch.setattr(moba, "DENSE", 0)
    layer, x = layer_of(max_len=40, block=4, topk=3), torch.randn(1, 40, 12, dtype=torch.float64)
    q, k, v = (torch.randn(1, 2, 40, 6, dtype=torch.float64) for _ in range(3))
    expected = layer.attend(q, k, v, None)
    monkeypatch.setattr(type(layer), "dropout", 0.5)
    torch.manual_seed(1)
    draws = torch.stack([layer.attend(q, k, v, None) for _ in range(600)])
    errors = (draws.mean(0) - expected).abs() / (draws.std(0) / 600**0.5).clamp_min(1e-9)
    assert draws.std(0).mean() > 0.1 and errors.square().mean() < 1.3
    assert x.shape == layer(x).tokens.shape


def test_memory_grows_with_the_tokens_and_not_with_their_square():
    peaks = []
    for n in (2048, 8192):
        layer, x = layer_of(max_len=n).float(), torch.randn(1, n, 12, requires_grad=True)
        call = lambda layer=layer, x=x: layer(x).tokens.sum().backward()  # noqa: E731
        call()
        peaks.append(peak_bytes(call, torch.device("cpu")))
    # The scores of all blocks, of which a few are chosen, are a small part.
    assert peaks[1] < 6 * peaks[0]
