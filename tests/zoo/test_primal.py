"""Primal-Attention compared with its equations, evaluated for one sample and head at a time."""

import pytest
import torch
from torch import Tensor

from tests.zoo.oracle import DIM, HEADS, in_half_precision, size
from tests.zoo.primal_oracle import OPTIONS, agree_with_gradients, build, expected, positions
from zoo.kernels import cosine_map
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
    # Short inputs too: otherwise both would be `plain` for them.
    monkeypatch.setattr(cosine_map, "CHUNKED_FROM", 1)


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


def results(form: str, x: Tensor, **options) -> tuple[Tensor, float]:
    torch.manual_seed(1)
    tokens, losses = build(form, **options)(x, x, None)
    return tokens, losses["ksvd"].item()


@pytest.mark.parametrize("form", FORMS)
def test_the_trace_of_the_data_is_the_trace_of_the_weights_unless_they_depend_on_it(form):
    x = torch.randn(3, 40, DIM).double()
    (_, weights), (_, data) = (results(form, x, trace=trace) for trace in ("weights", "data"))
    assert (weights == data) is (form != "dependent")


def test_the_two_orders_of_averaging_agree_on_equal_samples_only():
    x = torch.randn(3, 40, DIM).double()
    for tokens, same in ((x, False), (x[:1].expand_as(x).contiguous(), True)):
        batch, sample = (
            results("dependent", tokens, ksvd_mean=mean)[1] for mean in ("batch", "sample")
        )
        assert (abs(batch - sample) < 1e-12) is same


def test_the_chunked_map_is_used_for_long_inputs_only(monkeypatch):
    used, chunked = [], cosine_map.chunked
    monkeypatch.setattr(cosine_map, "chunked", lambda x, *rest: (
        used.append(x.shape[1]) or chunked(x, *rest)
    ))  # fmt: skip
    layer, x = build("dependent").eval(), torch.randn(2, cosine_map.CHUNKED_FROM, DIM).double()
    for tokens, lengths in ((x[:, 1:], []), (x, [cosine_map.CHUNKED_FROM])):
        layer(tokens, tokens, None)
        assert used == lengths


@pytest.mark.parametrize("form", FORMS)
def test_under_autocast_only_products_over_all_tokens_are_in_half_precision(path, form):
    n = 97
    layer, x = build(form).float(), torch.randn(3, n, DIM)
    products = in_half_precision(lambda: layer(x, x, None))
    assert products
    assert all(any({n, 3 * n} & {*shape} for shape in shapes) for _, shapes in products)
    if OPTIONS.get("backend") == "literal":  # Both projections, and nothing of three axes.
        assert {name for name, _ in products} == {"addmm"}


def sampled_by(layer: Primal, x: torch.Tensor, mask: torch.Tensor | None) -> list[set[int]]:
    dependent = []
    for output in (0, x.shape[1] // 2):
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(layer(x, x, mask).tokens[:, output].abs().sum(), x)
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
    assert sampled_by(layer, x, None) == [set(published)]


def test_sampled_positions_are_spread_evenly_over_the_real_tokens():
    x, mask = torch.randn(3, 100, DIM).double(), torch.rand(3, 100) < 0.6
    mask[:, [0, 50]] = True
    samples = sampled_by(build("dependent"), x, mask)
    for sample, is_real in zip(samples, mask, strict=True):
        real = is_real.nonzero()[:, 0]
        assert sample == set(real[positions(len(real), 15)].tolist())


def test_with_equal_directions_a_score_is_the_count_of_tokens_that_equal_its_own():
    layer = build("dependent", 40, rank=1, rank_multi=40)
    tokens = torch.randint(DIM // HEADS, (2, 40))
    features = torch.nn.functional.one_hot(tokens, DIM // HEADS).double()
    with torch.no_grad():
        weights = layer.weights(features.repeat(1, 1, HEADS), None, layer.directions.fill_(1))
    scores = torch.einsum("bnp,bchps->bnchs", features, weights)
    counts = (tokens[:, :, None] == tokens[:, None]).sum(2).double()
    torch.testing.assert_close(scores, counts[:, :, None, None, None].expand(scores.shape))


def test_projections_auto_are_dependent_unless_causal():
    layer = Primal(size(max_len=50))
    assert (layer.projections, build("causal").projections) == ("dependent", "independent")
    assert layer.directions.shape == (2, HEADS, 50, 30)
    assert Primal(layer.size, rank=4).directions.shape == (2, HEADS, 40, 4)
    with pytest.raises(UserError, match="projections=dependent uses future tokens"):
        build("causal", projections="dependent")
