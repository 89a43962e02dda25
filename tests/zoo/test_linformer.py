"""Linformer compared with its formula, with softmax, and as initialised."""

import pytest
import torch
from torch.nn import functional as F

from tests.zoo.oracle import HEADS, PADDED, WIDTH, agree, qkv, ragged, softmax_attention
from zoo.contract import Size
from zoo.variants.linformer import Linformer

MAX_LEN = 1000
SHARING = pytest.mark.parametrize("sharing", ["none", "headwise", "kv"])


def fresh(max_len: int = MAX_LEN, dropout: float = 0.0, **options) -> Linformer:
    size = Size(dim=HEADS * WIDTH, heads=HEADS, max_len=max_len, causal=False, dropout=dropout)
    return Linformer(size, **options).double()


def randomised(layer: Linformer) -> Linformer:
    """`layer` with E and F as N(0, 1 / (r + max_len)), which differ from each other."""
    torch.nn.init.normal_(layer.projections)
    return layer


def linformer(max_len: int = MAX_LEN, dropout: float = 0.0, **options) -> Linformer:
    return randomised(fresh(max_len, dropout, **options))


def by_the_formula(q, k, v, mask, projections):
    """One sample and head at a time, with padded tokens removed from keys and values."""
    out = torch.zeros_like(q)
    for b in range(q.shape[0]):
        real = torch.arange(k.shape[2]) if mask is None else mask[b].nonzero()[:, 0]
        for h in range(q.shape[1]):
            own = projections[:, h if projections.shape[1] > 1 else 0, :, : len(real)]
            e, f = (own[0], own[0]) if len(own) == 1 else (own[0], own[1])
            scores = q[b, h] @ (e @ k[b, h, real]).T / q.shape[-1] ** 0.5
            out[b, h] = scores.softmax(-1) @ (f @ v[b, h, real])
    return out


@SHARING
@PADDED
@pytest.mark.parametrize("n", [1, 2, 63, 100, 1000])
def test_output_and_gradients_are_those_of_the_formula(n, padded, sharing):
    layer, inputs = linformer(rank=16, sharing=sharing), qkv(n, n)
    inputs.append(layer.projections)
    mask = ragged(n) if padded else None
    out = layer.attend(*inputs[:3], mask)
    expected = by_the_formula(*inputs[:3], mask, layer.scale * layer.projections)
    agree(out, expected, *inputs, slopes=(1e-9, 1e-11))


@pytest.mark.parametrize(("sharing", "count"), [("none", 4), ("headwise", 2), ("kv", 1)])
def test_sharing_reduces_the_number_of_matrices(sharing, count):
    assert linformer(100, rank=7, sharing=sharing).projections.numel() == count * 7 * 100


def test_queries_and_keys_may_differ_in_number():
    layer, inputs = linformer(rank=16), qkv(5, 11)
    expected = by_the_formula(*inputs, ragged(11), layer.scale * layer.projections)
    torch.testing.assert_close(layer.attend(*inputs, ragged(11)), expected, rtol=1e-10, atol=0)


def test_one_column_for_each_token_is_exact_softmax():
    layer, (q, k, v) = linformer(63, rank=63), qkv(63, 63)
    with torch.no_grad():
        layer.projections.copy_(torch.eye(63)[torch.randperm(63)] / layer.scale)
    exact = (q @ k.mT / WIDTH**0.5).softmax(-1) @ v
    torch.testing.assert_close(layer.attend(q, k, v, None), exact)


@SHARING
@pytest.mark.parametrize(
    ("rank", "max_len"), [(8, 64), (7, 100), (64, 64), (256, 64), (1, 5), (256, 1024)]
)
def test_a_fresh_layer_attends_to_the_means_of_segments(rank, max_len, sharing):
    layer, (q, k, v) = fresh(max_len, rank=rank, sharing=sharing), qkv(max_len)
    k_means, v_means = (
        F.adaptive_avg_pool1d(part.flatten(0, 1).mT, rank).mT.unflatten(0, part.shape[:2])
        for part in (k, v)
    )
    expected = softmax_attention(q, k_means, v_means)
    # The means were computed in fp32.
    agree(layer.attend(q, k, v, None), expected, outputs=(1e-5, 1e-6))


@pytest.mark.parametrize(("rank", "max_len"), [(8, 64), (256, 1024)])
def test_a_fresh_layer_preserves_a_component_that_all_values_share(rank, max_len):
    """Rows with random signs cancel it, and training does not start: see the module's docstring."""
    layer, (q, k, v) = fresh(max_len, rank=rank), qkv(max_len)
    one = torch.ones_like(v)
    torch.testing.assert_close(layer.attend(q, k, one, None), one, rtol=0, atol=1e-6)
    random = randomised(fresh(max_len, rank=rank))
    assert random.attend(q, k, one, None).mean().abs() < 0.5


def test_dropout_applies_to_weights_in_training_only():
    inputs = [part.detach() for part in qkv(30, 30)]
    layer = linformer(dropout=0.5, rank=16)
    dropped = layer.attend(*inputs, None)
    exact = by_the_formula(*inputs, None, layer.scale * layer.projections)
    assert not torch.allclose(dropped, exact)
    torch.testing.assert_close(layer.eval().attend(*inputs, None), exact)


def test_a_rank_above_the_length_is_allowed():
    assert linformer(9, rank=40).attend(*qkv(9, 9), None).isfinite().all()


def test_a_step_of_adamw_changes_a_projected_key_by_less_than_itself():
    """With E as the parameter it would change by n times the learning rate."""
    layer, x = fresh(1024, rank=256), torch.randn(2, 1024, HEADS * WIDTH).double() + 1
    before = layer.scale * layer.projections.detach()
    optimizer = torch.optim.AdamW(layer.parameters(), lr=2e-3, weight_decay=0.0)
    layer(x, x, None).tokens.square().mean().backward()
    optimizer.step()
    change = (layer.scale * layer.projections.detach() - before).abs().sum(-1)
    assert 0 < change.max() < 0.1
    assert before.sum(-1).allclose(torch.ones(()).double())
