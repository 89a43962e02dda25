"""Landmarks and projections: convergence, inverses, and how Linformer starts and trains."""

import pytest
import torch
from torch.nn import functional as F

import zoo
from tests.zoo.formulas import gaussian as gaussian_of_differences
from tests.zoo.oracle import DIM, HEADS, WIDTH, agree, qkv, softmax_attention
from zoo.variants.nystrom import pseudo_inverse
from zoo.variants.soft import gaussian, inverse


def create(name: str, *, max_len: int = 1000, **options) -> zoo.Attention:
    return zoo.create(name, dim=DIM, heads=HEADS, max_len=max_len, **options).double()


def smooth(n: int) -> torch.Tensor:
    """Queries, keys and values that change little from token to token."""
    waves = torch.arange(1, 5) * torch.rand(3, 2, HEADS, WIDTH, 4).double()
    return 1.5 * torch.sin(2 * waves[..., None] * torch.linspace(0, 1, n).double()).sum(-2).mT


def test_more_landmarks_are_closer_to_the_exact_kernel_on_smooth_inputs():
    q, k, v = smooth(512)
    weights = torch.exp(-(q[..., :, None, :] - q[..., None, :, :]).square().sum(-1) / 4)
    for name, exact, inputs, counts in (
        ("nystrom", softmax_attention(q, k, v), (q, k, v), (8, 16, 32, 64)),
        ("soft", weights @ v, (q, q, v), (2, 4, 8, 16)),
    ):
        layers = [create(name, landmarks=count, iterations=20) for count in counts]
        misses = [(layer.attend(*inputs, None) - exact).norm() for layer in layers]
        assert misses == sorted(misses, reverse=True)
        assert misses[-1] < 0.1 * misses[0]


def test_more_iterations_are_closer_to_exact_softmax():
    inputs = [part.detach() for part in qkv(32)]
    exact = softmax_attention(*inputs)
    layers = [create("nystrom", landmarks=32, iterations=count) for count in (4, 8, 12, 16)]
    misses = [(layer.attend(*inputs, None) - exact).norm() for layer in layers]
    assert misses == sorted(misses, reverse=True)
    assert misses[-1] < 0.01 * misses[0]


@pytest.mark.parametrize("size", [1, 2, 12])
def test_iterations_converge_to_the_inverse(size):
    a = torch.randn(2, 3, size, size).double().softmax(-1)
    torch.testing.assert_close(pseudo_inverse(a, 40), torch.linalg.pinv(a), rtol=0, atol=1e-8)
    marks = 2 * torch.randn(2, 3, size, WIDTH).double()
    a = gaussian(marks, marks)
    torch.testing.assert_close(inverse(a, 30), torch.linalg.inv(a), rtol=0, atol=1e-8)


def test_the_kernel_is_that_of_differences_of_vectors():
    x, y = torch.randn(2, 1, 1, 20, WIDTH).double()
    expected = gaussian_of_differences(x[0, 0], y[0, 0])
    torch.testing.assert_close(gaussian(x, y)[0, 0], expected)
    assert (gaussian(1e4 * x.float(), 1e4 * x.float()) <= 1).all()


@pytest.mark.parametrize(("sharing", "count"), [("none", 4), ("headwise", 2), ("kv", 1)])
def test_sharing_reduces_the_number_of_matrices(sharing, count):
    layer = create("linformer", max_len=100, rank=7, sharing=sharing)
    assert layer.projections.numel() == count * 7 * 100


def test_one_column_for_each_token_is_exact_softmax():
    layer, inputs = create("linformer", max_len=63, rank=63), qkv(63)
    with torch.no_grad():
        layer.projections.copy_(torch.eye(63)[torch.randperm(63)] / layer.scale)
    torch.testing.assert_close(layer.attend(*inputs, None), softmax_attention(*inputs))


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


@pytest.mark.parametrize(("rank", "max_len"), [(8, 64), (256, 1024)])
def test_a_fresh_layer_preserves_a_component_that_all_values_share(rank, max_len):
    """Rows with random signs cancel it, and training does not start: see the module's docstring."""
    layer, (q, k, v) = create("linformer", max_len=max_len, rank=rank), qkv(max_len)
    ones = torch.ones_like(v)
    torch.testing.assert_close(layer.attend(q, k, ones, None), ones, rtol=0, atol=1e-6)
    torch.nn.init.normal_(layer.projections)
    assert layer.attend(q, k, ones, None).mean().abs() < 0.5


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
