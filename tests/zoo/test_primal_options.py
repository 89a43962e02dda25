"""The options of Primal-Attention: its backends, which compute alike, and its feature maps."""

import itertools

import pytest
import torch

import zoo
from tests.zoo.oracle import DIM, HEADS, in_half_precision, size
from tests.zoo.primal_oracle import build
from zoo import feature_maps
from zoo.contract import Unsupported
from zoo.kernels import cosine_map
from zoo.registry import UserError
from zoo.variants.primal import Primal


def test_the_literal_form_has_scores_of_every_token_and_the_folded_one_has_none():
    n, x = 97, torch.randn(2, 97, DIM).double().requires_grad_()
    stored = {}
    for backend in ("literal", "folded"):
        layer, shapes = build("dependent", backend=backend), []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda part, shapes=shapes: shapes.append(part.shape) or part, lambda part: part
        ):
            layer(x, x, None)
        stored[backend] = {tuple(shape) for shape in shapes}
    scores = (2, HEADS, n, 3)
    assert scores in stored["literal"]
    assert not [shape for shape in stored["folded"] if n in shape and shape[-1] in (3, 6)]


def test_the_literal_form_computes_scores_in_full_precision_under_autocast_as_published():
    layer, x = build("dependent", backend="literal").float(), torch.randn(3, 97, DIM)
    # Both projections, and nothing of three axes.
    assert {name for name, _ in in_half_precision(lambda: layer(x, x, None))} == {"addmm"}


@pytest.mark.parametrize("form", ["dependent", "independent", "causal"])
@pytest.mark.parametrize("backend", ["literal", "folded"])
def test_evaluation_gives_the_same_tokens_and_neither_energies_nor_a_loss(backend, form):
    layer, x = build(form, backend=backend), torch.randn(2, 30, DIM).double()
    assert layer.backend_for(x) == backend
    trained = layer(x, x, None)
    _, weights = layer.weights(x, None, layer.directions)
    compute = layer.eval()._literal if backend == "literal" else layer.eval()._folded
    _, energy = compute(x, weights, None, *([] if backend == "literal" else [False]))
    assert energy.numel() == 0
    evaluated = layer(x, x, None)
    assert set(trained.losses) == {"ksvd"} and dict(evaluated.losses) == {}
    assert torch.equal(evaluated.tokens, trained.tokens)


def test_auto_is_folded_on_a_cpu():
    assert Primal(size()).backend_for(torch.zeros(1, 3, DIM)) == "folded"


@pytest.mark.parametrize(
    ("failure", "changes", "expected"),
    [
        ("", {}, "triton"),
        ("no kernel", {}, "folded"),
        ("", {"causal": True}, "folded"),
        ("", {"rotary": True}, "folded"),
    ],
)
def test_auto_on_cuda_is_triton_where_a_trial_succeeds(monkeypatch, failure, changes, expected):
    monkeypatch.setattr(cosine_map, "triton_failure", lambda *_: failure)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    assert Primal(size(**changes)).backend_for(torch.zeros(1, 3, DIM)) == expected


@pytest.mark.parametrize("changes", [{"causal": True}, {"rotary": True}])
def test_triton_by_name_is_rejected_for_forms_without_a_kernel(changes):
    message = r"^primal\.backend=triton computes neither .* nor rotary .*; give backend=auto$"
    with pytest.raises(Unsupported, match=message):
        Primal(size(**changes), backend="triton")


@pytest.mark.parametrize(
    "reason", ["its kernels need a CUDA device, and there is none", "triton is not installed"]
)
def test_triton_by_name_is_rejected_where_it_cannot_run(monkeypatch, reason):
    monkeypatch.setattr(cosine_map, "missing_for_triton", lambda: reason)
    message = rf"^primal\.backend=triton cannot run: {reason}; give backend=auto$"
    with pytest.raises(Unsupported, match=message):
        Primal(size(), backend="triton")


def test_triton_by_name_is_rejected_where_its_trial_fails(monkeypatch):
    monkeypatch.setattr(cosine_map, "missing_for_triton", lambda: "")
    monkeypatch.setattr(cosine_map, "triton_failure", lambda *_: "too wide")
    layer, x = Primal(size(), backend="triton"), torch.zeros(1, 3, DIM)
    message = r"^primal\.backend=triton cannot run: too wide; give backend=auto$"
    with pytest.raises(Unsupported, match=message):
        layer(x, x, None)


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


def layer_of(**options):
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


@pytest.fixture
def register(monkeypatch):
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
        attention = layer_of(feature_map=name)
        with torch.no_grad():
            # Queries and keys twice as large have twice the features.
            attention.query_key.weight.mul_(2 if name == "identity" else 1)
            attention.query_key.bias.mul_(2 if name == "identity" else 1)
        tokens.append(attention(x).tokens)
    torch.testing.assert_close(*tokens)


def test_a_map_that_mixes_tokens_into_its_features_is_rejected(register):
    register("flat")(lambda u: u.flatten())
    with pytest.raises(UserError, match=r"'flat' gives shape \(24,\) for \(2, 3, 4\); return"):
        layer_of(feature_map="flat")


def test_triton_by_name_is_rejected_for_a_map_without_a_kernel():
    with pytest.raises(zoo.Unsupported, match="nor a feature map other than cosine"):
        layer_of(feature_map="relu", backend="triton")
    assert layer_of(feature_map="relu").backend_for(torch.zeros(1, 3, DIM)) == "folded"
