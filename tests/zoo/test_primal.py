"""Primal-Attention compared with its equations, evaluated for one sample and head at a time.

Then its feature maps, and fresh layers, which have the published initialisation.
"""

import itertools

import pytest
import torch

import zoo
from tests.zoo.oracle import DIM, HEADS, in_half_precision
from tests.zoo.primal_oracle import OPTIONS, agree_with_gradients, build, expected
from zoo import feature_maps
from zoo.kernels import cosine_map, cosine_map_chunked
from zoo.registry import UserError
from zoo.variants.primal import Primal

FORMS = ["dependent", "independent", "causal"]


def paddings(n: int) -> dict[str, torch.Tensor | None]:
    ends = torch.arange(n) < torch.tensor([n, n - n // 3, n // 2])[:, None]
    holes = torch.rand(3, n) < 0.6
    holes[0, 0], holes[1, -1], holes[2, : n // 2] = False, False, False
    holes[:, n // 2 + 1] = True
    return {"full": None, "ends": ends, "holes": holes}


@pytest.fixture(params=["chunked", "plain", "literal"])
def path(request, monkeypatch):
    if request.param == "literal":
        monkeypatch.setitem(OPTIONS, "backend", "literal")
    if request.param == "plain":
        monkeypatch.setattr(cosine_map, "chunked", cosine_map.plain)
    # Short inputs too, in several chunks: otherwise both would be `plain` for them.
    monkeypatch.setattr(cosine_map, "CHUNKED_FROM", 1)
    monkeypatch.setattr(cosine_map_chunked, "CHUNK", 40)


CASES = [
    (form, trace, mean, padding, rotary)
    for form in FORMS
    for trace, mean, padding, rotary in (
        ("weights", "batch", "full", False), ("data", "sample", "full", False),
        ("data", "batch", "ends", False), ("weights", "sample", "ends", False),
        ("data", "batch", "holes", False), ("weights", "sample", "holes", False),
        ("data", "batch", "holes", True),
    )
]  # fmt: skip
"""Every pair of a trace, a mean and a kind of padding, in each form; and rotary positions."""


@pytest.mark.slow_after(20)
@pytest.mark.parametrize(("form", "trace", "mean", "padding", "rotary"), CASES)
def test_outputs_losses_and_gradients_are_those_of_the_equations(
    path, form, trace, mean, padding, rotary
):
    n = 63
    layer = build(form, trace=trace, ksvd_mean=mean, rotary=rotary)
    x = torch.randn(3, n, DIM).double().requires_grad_()
    mask = paddings(n)[padding]
    tokens, losses = layer(x, x, mask)
    real = torch.ones(3, n, 1) if mask is None else mask[:, :, None]
    ours = tokens * real, losses["ksvd"]
    agree_with_gradients(ours, expected(layer, x, x, mask), [x, *layer.parameters()])


@pytest.mark.parametrize("mean", ["batch", "sample"])
@pytest.mark.parametrize("form", FORMS)
def test_the_loss_with_samples_without_a_real_token_is_finite_and_does_not_read_them(form, mean):
    layer, x = build(form, ksvd_mean=mean, trace="data"), torch.randn(3, 20, DIM).double()
    for lengths in ([20, 0, 5], [0, 0, 0]):
        mask = torch.arange(20) < torch.tensor(lengths)[:, None]
        losses = []
        for padding in (x, 10 * torch.randn_like(x)):
            inputs = x.where(mask[..., None], padding).requires_grad_()
            tokens, losses_of = layer(inputs, inputs, mask)
            loss, leaves = losses_of["ksvd"], [inputs, *layer.parameters()]
            slopes = torch.autograd.grad(tokens.sum() + loss, leaves, materialize_grads=True)
            assert all(part.isfinite().all() for part in (tokens, loss, *slopes))
            losses.append(loss)
        torch.testing.assert_close(*losses, rtol=1e-12, atol=0)


@pytest.mark.parametrize("form", FORMS)
def test_under_autocast_only_products_over_all_tokens_are_in_half_precision(path, form):
    n = 97
    layer, x = build(form).float(), torch.randn(3, n, DIM)
    products = in_half_precision(lambda: layer(x, x, None))
    assert products
    assert all(any({n, 3 * n} & {*shape} for shape in shapes) for _, shapes in products)
    if OPTIONS.get("backend") == "literal":  # Both projections, and nothing of three axes.
        assert {name for name, _ in products} == {"addmm"}


def sampled_by(layer: Primal, x: torch.Tensor) -> list[set[int]]:
    dependent = []
    for output in (0, x.shape[1] // 2):
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(layer(x, x, None).tokens[:, output].abs().sum(), x)
        dependent.append(gradient.abs().sum(2) > 0)
    # An output depends on the token at its place too: only what both depend on was sampled.
    both = dependent[0] & dependent[1]
    return [set(row.nonzero()[:, 0].tolist()) for row in both]


@pytest.mark.parametrize(
    ("n", "rank", "multi"), [(63, 20, 10), (63, 1, 1), (100, 3, 5), (1000, 20, 10), (1024, 30, 10)]
)
def test_sampled_positions_are_the_published_ones_without_padding(n, rank, multi):
    layer = build("dependent", n, rank=rank, rank_multi=multi)
    x = torch.randn(1, n, DIM).double()
    count = min(n, rank * multi)
    published = torch.linspace(0, n - 1, count, dtype=torch.float64).long().tolist()
    assert sampled_by(layer, x) == [set(published)]


def test_with_equal_directions_a_score_is_the_count_of_tokens_that_equal_its_own():
    layer = build("dependent", 40, rank=1, rank_multi=40)
    tokens = torch.randint(DIM // HEADS, (2, 40))
    features = torch.nn.functional.one_hot(tokens, DIM // HEADS).double()
    with torch.no_grad():
        weights = layer.weights(features.repeat(1, 1, HEADS), None, layer.directions.fill_(1))
    scores = torch.einsum("bnp,bchps->bnchs", features, weights)
    counts = (tokens[:, :, None] == tokens[:, None]).sum(2).double()
    torch.testing.assert_close(scores, counts[:, :, None, None, None].expand(scores.shape))


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


@pytest.mark.parametrize("form", FORMS)
def test_the_whole_tensor_of_each_head_has_norm_one_and_the_objective_starts_small(form):
    layer = build(form, 1024, rank=30, rank_multi=10, eta=0.1).float()
    x = torch.nn.functional.layer_norm(torch.randn(4, 1024, DIM), (DIM,))
    w_e, w_r = layer.directions.detach()
    assert (w_e - w_r).norm() == pytest.approx(2.0, rel=0.1)  # drawn independently
    heads = layer.directions.detach().flatten(2)
    torch.testing.assert_close(heads @ heads.mT, torch.eye(2).expand(2, 2, 2), rtol=0, atol=1e-5)
    # Columns are neither of norm one nor orthonormal.
    assert layer.directions.norm(dim=2).max() < 0.5
    assert layer(x, x, None).losses["ksvd"] < 0.02
