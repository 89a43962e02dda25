"""Feature maps compared with their kernels; a map of one's own; the errors of both."""

import itertools

import pytest
import torch

import zoo
from tests.zoo.oracle import DIM, HEADS
from zoo import feature_maps
from zoo.registry import UserError

KERNELS = {
    "cosine": lambda q, k: q @ k / (q.norm() * k.norm()),
    "exponential": lambda q, k: (q.exp() * k.exp()).sum() / (q.exp().sum() * k.exp().sum()),
    "relu": lambda q, k: sum(max(a, 0) * max(b, 0) for a, b in zip(q, k, strict=True)) / len(q),
    "elu": lambda q, k: sum(
        (torch.nn.functional.elu(a) + 1) * (torch.nn.functional.elu(b) + 1)
        for a, b in zip(q, k, strict=True)
    ) / len(q),
    "polynomial": lambda q, k: (q @ k) ** 2 / (q @ q * (k @ k)),
    "identity": lambda q, k: q @ k / len(q),
}  # fmt: skip
NAMES = pytest.mark.parametrize("name", KERNELS)


def layer(**options):
    return zoo.create("primal", dim=DIM, heads=HEADS, max_len=40, rank=3, rank_multi=5, **options)


def test_every_map_of_the_package_is_tested_here():
    assert sorted(KERNELS) == feature_maps.feature_maps.names()


@NAMES
def test_products_of_features_are_the_kernel(name):
    q, k = 2 * torch.randn(2, 5, 6).double()
    phi = feature_maps.feature_maps.find(name)
    pairs = itertools.product(q, k)
    expected = torch.stack([KERNELS[name](a, b) for a, b in pairs]).view(5, 5)
    torch.testing.assert_close(phi(q) @ phi(k).mT, expected, rtol=1e-12, atol=1e-14)
    assert feature_maps.width(name, 6) == phi(q).shape[-1] == (21 if name == "polynomial" else 6)


@NAMES
def test_the_zero_vector_has_the_stated_features_and_a_finite_gradient(name):
    zero = torch.zeros(1, 4, requires_grad=True)
    features = feature_maps.feature_maps.find(name)(zero)
    expected = {"exponential": 1 / 4, "elu": 1 / 2}.get(name, 0.0)
    assert torch.equal(features, torch.full_like(features, expected))
    (gradient,) = torch.autograd.grad(features.sum(), zero)
    assert gradient.isfinite().all()


def test_a_wrong_name_is_rejected_with_the_most_similar_one():
    message = r"^primal\.feature_map=cosin cannot be used: unknown feature map 'cosin'; did you "
    with pytest.raises(UserError, match=message + r"mean 'cosine'\?$"):
        layer(feature_map="cosin")


@pytest.fixture
def register(monkeypatch):
    """Registers feature maps until the end of a test."""
    maps = feature_maps.feature_maps
    maps.names()
    monkeypatch.setattr(maps, "_registered", dict(maps._registered))
    return maps.register


def test_a_map_of_ones_own_is_used_by_its_name(register):
    register("double")(lambda u: 2 * u * u.shape[-1] ** -0.5)
    x = torch.randn(2, 40, DIM)
    tokens = []
    for name in ("double", "identity"):
        torch.manual_seed(1)
        attention = layer(feature_map=name)
        with torch.no_grad():
            # Twice the features are those of queries and keys twice as large.
            attention.query_key.weight.mul_(2 if name == "identity" else 1)
            attention.query_key.bias.mul_(2 if name == "identity" else 1)
        tokens.append(attention(x).tokens)
    torch.testing.assert_close(*tokens)


def test_a_map_that_mixes_tokens_into_its_features_is_rejected(register):
    register("flat")(lambda u: u.flatten())
    with pytest.raises(UserError, match=r"'flat' gives shape \(24,\) for \(2, 3, 4\); return"):
        layer(feature_map="flat")


def test_triton_by_name_is_rejected_for_a_map_without_a_kernel():
    with pytest.raises(zoo.Unsupported, match="nor a feature map other than cosine"):
        layer(feature_map="relu", backend="triton")
    assert layer(feature_map="relu").backend_for(torch.zeros(1, 3, DIM)) == "folded"
