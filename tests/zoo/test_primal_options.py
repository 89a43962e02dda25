"""The options of Primal-Attention: its backends, which compute alike, feature maps, fresh layers.

Fresh layers have the published initialisation: its statistics are also taken with orthonormal
columns head by head, which they must reject.
"""

import itertools

import pytest
import torch

import zoo
from tests.zoo.oracle import DIM, HEADS
from tests.zoo.primal_oracle import make_columns_orthonormal
from zoo import feature_maps
from zoo.contract import Size
from zoo.registry import UserError
from zoo.variants.primal import Primal

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


SIZES = {"dim": DIM, "heads": HEADS, "max_len": 40}


@pytest.mark.parametrize("name", KERNELS)
def test_products_of_features_are_the_kernel(name):
    q, k = 2 * torch.randn(2, 5, 6).double()
    phi = feature_maps.feature_maps.find(name)
    pairs = itertools.product(q, k)
    expected = torch.stack([KERNELS[name](a, b) for a, b in pairs]).view(5, 5)
    torch.testing.assert_close(phi(q) @ phi(k).mT, expected, rtol=1e-12, atol=1e-14)
    zero = torch.zeros(1, 4, requires_grad=True)
    constant = {"exponential": 1 / 4, "elu": 1 / 2}.get(name, 0.0)
    assert torch.equal(phi(zero), torch.full_like(phi(zero), constant))
    assert torch.autograd.grad(phi(zero).sum(), zero)[0].isfinite().all()
    assert sorted(KERNELS) == feature_maps.feature_maps.names()
    assert feature_maps.width(name, 6) == phi(q).shape[-1] == (21 if name == "polynomial" else 6)


@pytest.fixture
def register(monkeypatch):
    maps = feature_maps.feature_maps
    maps.names()
    monkeypatch.setattr(maps, "_registered", dict(maps._registered))
    return maps.register


def test_a_map_of_ones_own_is_used_by_its_name_unless_it_mixes_tokens(register):
    register("double")(lambda u: 2 * u * u.shape[-1] ** -0.5)
    register("flat")(lambda u: u.flatten())
    x, tokens = torch.randn(2, 40, DIM), []
    for name in ("double", "identity"):
        torch.manual_seed(1)
        layer = zoo.create("primal", **SIZES, rank=3, feature_map=name)
        with torch.no_grad():
            # Queries and keys twice as large have twice the features.
            layer.query_key.weight.mul_(2 if name == "identity" else 1)
            layer.query_key.bias.mul_(2 if name == "identity" else 1)
        tokens.append(layer(x).tokens)
    torch.testing.assert_close(*tokens)
    with pytest.raises(UserError, match=r"'flat' gives shape \(24,\) for \(2, 3, 4\); return"):
        zoo.create("primal", **SIZES, feature_map="flat")


RANK = 30


def fresh(form: str) -> Primal:
    size = Size(dim=64, heads=2, max_len=1024, causal=form == "causal", dropout=0.0)
    return Primal(size, rank=RANK, projections="auto" if form == "causal" else form)


@pytest.mark.parametrize("form", ["dependent", "independent", "causal"])
def test_the_whole_tensor_of_each_head_has_norm_one_and_the_objective_starts_small(form):
    layer, x = fresh(form), torch.nn.functional.layer_norm(torch.randn(4, 1024, 64), (64,))
    w_e, w_r = layer.directions.detach().clone()
    assert (w_e - w_r).norm() == pytest.approx(2.0, rel=0.1)  # drawn independently
    for columns in (False, True):
        if columns:
            make_columns_orthonormal(layer)
        heads = layer.directions.detach().flatten(2)
        grams = heads @ heads.mT
        norms = torch.full((2, 2), float(RANK) if columns else 1.0)
        torch.testing.assert_close(grams.diagonal(dim1=1, dim2=2), norms, rtol=1e-5, atol=0)
        # Heads are orthogonal to each other; columns are neither of norm one nor orthonormal.
        assert bool(grams[:, 0, 1].abs().max() < 1e-5) is not columns
        of_columns = layer.directions.norm(dim=2) * RANK**0.5
        assert bool(of_columns.min() > 0.6 and of_columns.max() < 1.4) is not columns
        loss = layer(x, x, None).losses["ksvd"]
        assert loss > 1 if columns and form == "dependent" else columns or loss < 0.02


def test_lambda_is_uniform_between_zero_and_one():
    torch.manual_seed(3)
    scales = torch.cat([fresh("independent").scales.detach().flatten() for _ in range(20)])
    assert 0 <= scales.min() < 0.01 and 0.99 < scales.max() < 1
    assert scales.mean() == pytest.approx(1 / 2, abs=0.03)
    assert scales.var() == pytest.approx(1 / 12, abs=0.01)
