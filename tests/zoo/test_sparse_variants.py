"""Landmarks and projections, windows, global tokens and hashes: convergence, dropout and states."""

import pytest
import torch
from torch.nn import functional as F

import zoo
from tests.zoo.oracle import DIM, HEADS, WIDTH, agree, create, decode, draw, qkv, softmax_attention


@pytest.mark.parametrize(("sharing", "count"), [("none", 4), ("headwise", 2), ("kv", 1)])
def test_sharing_reduces_the_number_of_matrices(sharing, count):
    layer = create("linformer", max_len=100, rank=7, sharing=sharing)
    assert layer.projections.numel() == count * 7 * 100


@pytest.mark.parametrize(
    ("rank", "max_len"), [(8, 64), (7, 100), (64, 64), (256, 64), (1, 5), (256, 1024)]
)
def test_a_fresh_layer_attends_to_the_means_of_segments(rank, max_len):
    (q, k, v) = inputs = qkv(max_len)
    k_means, v_means = (
        F.adaptive_avg_pool1d(part.flatten(0, 1).mT, rank).mT.unflatten(0, part.shape[:2])
        for part in (k, v)
    )
    expected = softmax_attention(q, k_means, v_means)
    for sharing in ("none", "headwise", "kv"):
        layer = create("linformer", max_len=max_len, rank=rank, sharing=sharing)
        # The means were computed in fp32.
        agree(layer.attend(*inputs, None), expected, outputs=(1e-5, 1e-6))


def test_a_step_of_adamw_changes_a_projected_key_by_less_than_itself():
    """With E as the parameter it would change by n times the learning rate."""
    layer = create("linformer", max_len=1024, rank=256)
    x = torch.randn(2, 1024, DIM).double() + 1
    before = layer.scale * layer.projections.detach()
    optimizer = torch.optim.AdamW(layer.parameters(), lr=2e-3, weight_decay=0.0)
    layer(x, x, None).tokens.square().mean().backward()
    optimizer.step()
    change = (layer.scale * layer.projections.detach() - before).abs().sum(-1)
    assert 0 < change.max() < 0.1
    assert before.sum(-1).allclose(torch.ones(()).double())


def test_dropout_of_global_tokens_and_of_the_window():
    layer, x = create("longformer", dropout=0.5, window=4), draw(30)
    dropped, expected = layer(x).tokens, layer.eval()(x).tokens
    assert not torch.allclose(dropped[:, 0], expected[:, 0])
    assert not torch.allclose(dropped[:, 1:], expected[:, 1:])


def test_dropping_weights_of_a_window_leaves_their_mean():
    inputs = [part.detach() for part in qkv(50)]
    exact = create("local", window=8).attend(*inputs, None)
    layer = create("local", dropout=0.5, window=8)
    outs = torch.stack([layer.attend(*inputs, None) for _ in range(400)])
    # 400 draws have a standard error of 5 % of a deviation.
    assert ((outs.mean(0) - exact).abs() < 0.3 * outs.std(0) + 1e-12).all()


def test_steps_of_sinks_equal_forward_with_more_first_tokens_than_the_window_has():
    layer = create("sinks", causal=True, window=3, tokens=9, learned=True).eval()
    torch.nn.init.normal_(layer.sink)
    x = draw(40).detach()
    torch.testing.assert_close(decode(layer, x)[0], layer(x).tokens)


def test_training_draws_new_rotations_and_keeps_those_of_evaluation():
    (q, _, v), layer = qkv(100), create("reformer", bucket=8).eval()
    before, expected = layer.rotations.clone(), layer.attend(q, q, v, None)
    assert not torch.equal(layer.train().attend(q, q, v, None), expected)
    assert torch.equal(layer.rotations, before)


def test_there_are_as_many_hashes_as_chunks_rounded_up_to_even():
    pairs = {64: 1, 65: 1, 128: 1, 129: 2, 1000: 8, 4096: 32}
    layers = {n: zoo.create("reformer", dim=DIM, heads=HEADS, max_len=n) for n in pairs}
    assert {n: layer.rotations.shape[-1] for n, layer in layers.items()} == pairs


def test_dropping_weights_of_reformer_keeps_their_mean():
    layer = create("reformer", dropout=0.25, bucket=200)
    ones = torch.ones(1, HEADS, 200, WIDTH)
    out = layer.attend(ones, ones, ones, None)
    # 199 weights of 1/199, each 0 or 4/3 as large: deviation sqrt(1/3 / 199) = 0.04 a token.
    assert out.mean() == pytest.approx(1.0, abs=0.01)
    assert out[..., 0].std() == pytest.approx((1 / 3 / 199) ** 0.5, rel=0.2)
    torch.testing.assert_close(layer.eval().attend(ones, ones, ones, None), ones)
