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
def test_evaluation_gives_the_same_tokens_and_no_loss(backend, form):
    layer, x = build(form, backend=backend), torch.randn(2, 30, DIM).double()
    assert layer.backend_for(x) == backend
    trained, evaluated = layer(x, x, None), layer.eval()(x, x, None)
    assert set(trained.losses) == {"ksvd"} and dict(evaluated.losses) == {}
    assert torch.equal(evaluated.tokens, trained.tokens)


@pytest.mark.parametrize(
    ("on_cuda", "failure", "changes", "expected"),
    [
        (False, "", {}, "folded"),
        (True, "", {}, "triton"),
        (True, "no kernel", {}, "folded"),
        (True, "", {"causal": True}, "folded"),
        (True, "", {"rotary": True}, "folded"),
    ],
)
def test_auto_is_triton_on_cuda_where_a_trial_succeeds(
    monkeypatch, on_cuda, failure, changes, expected
):
    monkeypatch.setattr(cosine_map, "triton_failure", lambda *_: failure)
    monkeypatch.setattr(torch.Tensor, "is_cuda", on_cuda)
    assert Primal(size(**changes)).backend_for(torch.zeros(1, 3, DIM)) == expected


@pytest.mark.parametrize(
    ("missing", "failure", "options", "message"),
    [
        ("no CUDA", "", {}, "cannot run: no CUDA; give backend=auto"),
        ("", "too wide", {}, "cannot run: too wide; give backend=auto"),
        ("", "", {"causal": True}, "computes neither .* nor rotary .*; give backend=auto"),
        ("", "", {"rotary": True}, "computes neither .* nor rotary .*; give backend=auto"),
        ("", "", {"feature_map": "relu"}, "computes .* nor a feature map other than cosine, .*"),
    ],
)
def test_triton_by_name_is_rejected_where_it_cannot_run(
    monkeypatch, missing, failure, options, message
):
    monkeypatch.setattr(cosine_map, "missing_for_triton", lambda: missing)
    monkeypatch.setattr(cosine_map, "triton_failure", lambda *_: failure)
    x = torch.zeros(1, 3, DIM)
    with pytest.raises(Unsupported, match=rf"^primal\.backend=triton {message}$"):
        zoo.create("primal", **SIZES, **options, backend="triton")(x)


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


SIZES = {"dim": DIM, "heads": HEADS, "max_len": 40}


@NAMES
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
