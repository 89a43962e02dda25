"""Landmarks and projections: convergence, inverses, and how Linformer starts and trains."""

import pytest
import torch
from torch.nn import functional as F

from tests.zoo.oracle import DIM, agree, create, qkv, softmax_attention


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
