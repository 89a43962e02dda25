"""Linformer against a loop over its formula and cases in which it is exact softmax."""

import pytest
import torch

from tests.zoo.oracle import HEADS, PADDED, WIDTH, agree, qkv, ragged
from zoo.contract import Size, Unsupported
from zoo.variants.linformer import Linformer

MAX_LEN = 1000
SHARING = pytest.mark.parametrize("sharing", ["none", "headwise", "kv"])


def linformer(max_len: int = MAX_LEN, dropout: float = 0.0, **options) -> Linformer:
    size = Size(dim=HEADS * WIDTH, heads=HEADS, max_len=max_len, causal=False, dropout=dropout)
    return Linformer(size, **options).double()


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
    out, expected = layer.attend(*inputs[:3], mask), by_the_formula(*inputs[:3], mask, inputs[3])
    agree(out, expected, *inputs, slopes=(1e-9, 1e-11))


@pytest.mark.parametrize(("sharing", "count"), [("none", 4), ("headwise", 2), ("kv", 1)])
def test_sharing_saves_matrices(sharing, count):
    assert linformer(100, rank=7, sharing=sharing).projections.numel() == count * 7 * 100


def test_queries_and_keys_may_differ_in_number():
    layer, inputs = linformer(rank=16), qkv(5, 11)
    expected = by_the_formula(*inputs, ragged(11), layer.projections)
    torch.testing.assert_close(layer.attend(*inputs, ragged(11)), expected, rtol=1e-10, atol=0)


def test_one_column_for_each_token_is_exact_softmax():
    layer, (q, k, v) = linformer(63, rank=63), qkv(63, 63)
    with torch.no_grad():
        layer.projections.copy_(torch.eye(63)[torch.randperm(63)])
    exact = (q @ k.mT / WIDTH**0.5).softmax(-1) @ v
    torch.testing.assert_close(layer.attend(q, k, v, None), exact)


def test_projected_keys_are_initially_about_as_large_as_keys():
    layer, (_, k, _) = linformer(rank=256), qkv(MAX_LEN, MAX_LEN)
    scale = (layer.projections[0] @ k).square().mean().sqrt() / k.square().mean().sqrt()
    assert 0.7 < scale < 1.1


def test_dropout_applies_to_weights_in_training_only():
    inputs = [part.detach() for part in qkv(30, 30)]
    layer = linformer(dropout=0.5, rank=16)
    drawn = layer.attend(*inputs, None)
    exact = by_the_formula(*inputs, None, layer.projections)
    assert not torch.allclose(drawn, exact)
    torch.testing.assert_close(layer.eval().attend(*inputs, None), exact)


def test_more_tokens_than_columns_are_rejected():
    with pytest.raises(Unsupported, match="linformer got 11 tokens, and has columns for max_len=9"):
        linformer(9, rank=4).attend(*qkv(11, 11), None)


def test_a_rank_above_the_length_is_allowed():
    assert linformer(9, rank=40).attend(*qkv(9, 9), None).isfinite().all()
