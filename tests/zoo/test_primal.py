"""Primal-Attention against its literal twin: scores in memory, a sample and a head at a time."""

import itertools

import pytest
import torch
from torch import Tensor

from tests.zoo.oracle import DIM, in_half_precision
from tests.zoo.primal_oracle import agree, build, positions
from zoo.kernels import cosine_map
from zoo.variants.primal import Primal

FORMS = ["dependent", "independent", "causal"]


def paddings(n: int) -> dict[str, torch.Tensor | None]:
    """No padding, a ragged end, and holes anywhere: before, between and behind real tokens."""
    ends = torch.arange(n) < torch.tensor([n, n - n // 3, n // 2])[:, None]
    holes = torch.rand(3, n) < 0.6
    holes[0, 0], holes[1, -1], holes[2, : n // 2] = False, False, False
    holes[:, n // 2 + 1] = True
    return {"full": None, "ends": ends, "holes": holes}


def real_rows(sample: Tensor, mask: Tensor | None) -> Tensor:
    """The rows of one sample that are no padding."""
    return sample if mask is None else sample[mask]


def scores(layer: Primal, x: Tensor, head: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """e and r (n, s) of one head for the real tokens x (n, d), and the W_e, W_r that made them."""
    width = layer.size.head_dim
    part = slice(head * width, (head + 1) * width)
    q, k = (side[:, part] for side in layer.query_key(x).chunk(2, dim=1))
    if layer.size.causal:
        steps = torch.arange(1, len(x) + 1, dtype=x.dtype)[:, None]
        q, k = q.cumsum(0) / steps, k.cumsum(0) / steps
    phi_q, phi_k = q / q.norm(dim=1, keepdim=True), k / k.norm(dim=1, keepdim=True)
    w_e, w_r = layer.directions[0, head], layer.directions[1, head]
    if layer.dependent:
        sampled = x[positions(len(x), len(w_e))][:, part]
        w_e, w_r = sampled.T @ w_e, sampled.T @ w_r
    return phi_q @ w_e, phi_k @ w_r, w_e, w_r


def literal_tokens(layer: Primal, x: Tensor, mask: Tensor | None) -> Tensor:
    """The layer's output (b, n, d), zero at padded tokens."""
    out = torch.zeros_like(x)
    for b in range(len(x)):
        kept = torch.ones(x.shape[1], dtype=torch.bool) if mask is None else mask[b]
        heads = []
        for head in range(layer.size.heads):
            e, r, _, _ = scores(layer, x[b][kept], head)
            heads.append(layer.merge(torch.cat([e, r], dim=1)))
        rows = layer.out(torch.cat(heads, dim=1))
        out = out.index_put((torch.tensor(b), kept.nonzero()[:, 0]), rows)
    return out


def literal_loss(layer: Primal, x: Tensor, mask: Tensor | None) -> Tensor:
    """Eta times J^2, with the means that the layer's options name."""
    energies, traces = [], []
    for b in range(len(x)):
        energy, trace = [], []
        for head in range(layer.size.heads):
            real = real_rows(x[b], None if mask is None else mask[b])
            e, r, w_e, w_r = scores(layer, real, head)
            scale = layer.scales[head]
            energy.append(((e * scale) ** 2).sum(1) / 2 + ((r * scale) ** 2).sum(1) / 2)
            if layer.trace == "weights":
                w_e, w_r = layer.directions[0, head], layer.directions[1, head]
            trace.append(torch.trace(w_e.T @ w_r))
        energies.append(torch.stack(energy))
        traces.append(torch.stack(trace))
    if layer.ksvd_mean == "batch":
        j = torch.cat(energies, dim=1).mean() - torch.stack(traces).mean()
        return layer.eta * j**2
    per_sample = [e.mean() - t.mean() for e, t in zip(energies, traces, strict=True)]
    return layer.eta * (torch.stack(per_sample) ** 2).mean()


@pytest.fixture(params=["chunked", "plain"])
def path(request, monkeypatch):
    """Which of the two ways through `cosine_map` an eager layer on a CPU takes."""
    if request.param == "plain":
        monkeypatch.setattr(cosine_map, "chunked", cosine_map.plain)


CASES = list(itertools.product(FORMS, ["weights", "data"], ["batch", "sample"]))


@pytest.mark.parametrize("n", [63, 100, 1000])
@pytest.mark.parametrize("padding", ["full", "ends", "holes"])
@pytest.mark.parametrize(("form", "trace", "mean"), CASES, ids=["-".join(c) for c in CASES])
def test_the_folded_layer_is_the_literal_one_forward_and_backward(
    path, n, padding, form, trace, mean
):
    layer = build(form, trace=trace, ksvd_mean=mean)
    x = torch.randn(3, n, DIM).double().requires_grad_()
    mask = paddings(n)[padding]
    real = torch.ones(3, n, 1) if mask is None else mask[:, :, None]
    ours, losses = layer(x, x, mask)
    pairs = [
        (ours * real, literal_tokens(layer, x, mask)),
        (losses["ksvd"], literal_loss(layer, x, mask)),
    ]
    inputs = {"x": x, **dict(layer.named_parameters())}
    ramp = torch.randn(3, n, DIM).double()
    for mine, other in pairs:
        agree(mine, other)
        # Each apart: a large gradient of one would hide a wrong one of the other.
        found = [
            torch.autograd.grad(
                (part * (ramp if part.ndim else 1)).sum(),
                list(inputs.values()),
                retain_graph=True,
                materialize_grads=True,
            )
            for part in (mine, other)
        ]
        for gradient, expected in zip(*found, strict=True):
            assert (gradient - expected).abs().max() <= 1e-10 * max(1, expected.abs().max())


@pytest.mark.parametrize("form", FORMS)
def test_the_trace_of_the_data_is_the_trace_of_the_weights_unless_they_depend_on_it(form):
    x = torch.randn(3, 40, DIM).double()
    losses = []
    for trace in ("weights", "data"):
        torch.manual_seed(1)
        losses.append(build(form, trace=trace)(x, x, None).losses["ksvd"].item())
    assert (losses[0] == losses[1]) is (form != "dependent")


def test_the_two_means_differ_unless_the_samples_are_alike():
    x = torch.randn(3, 40, DIM).double()
    alike = x[:1].expand_as(x).contiguous()
    for tokens, same in ((x, False), (alike, True)):
        losses = []
        for mean in ("batch", "sample"):
            torch.manual_seed(1)
            layer = build("dependent", ksvd_mean=mean)
            losses.append(layer(tokens, tokens, None).losses["ksvd"].item())
        assert (abs(losses[0] - losses[1]) < 1e-12) is same


def test_eta_weighs_the_loss_and_nothing_else():
    x = torch.randn(3, 40, DIM).double()
    results = []
    for eta in (0.0, 0.5, 1.0):
        torch.manual_seed(1)
        results.append(build("dependent", eta=eta)(x, x, None))
    none, half, whole = (attended.losses["ksvd"].item() for attended in results)
    assert none == 0.0
    assert whole > 0.0
    assert half == pytest.approx(whole / 2)
    assert torch.equal(results[0].tokens, results[2].tokens)


@pytest.mark.parametrize("padding", ["ends", "holes"])
@pytest.mark.parametrize("form", FORMS)
def test_padded_tokens_reach_neither_output_nor_loss(path, form, padding):
    layer, x = build(form), torch.randn(3, 63, DIM).double()
    mask = paddings(63)[padding]
    loud = torch.where(mask[:, :, None], x, 1e8 * torch.randn_like(x))
    quiet, disturbed = layer(x, x, mask), layer(loud, loud, mask)
    assert torch.equal(quiet.tokens[mask], disturbed.tokens[mask])
    assert torch.equal(quiet.losses["ksvd"], disturbed.losses["ksvd"])
    for b in range(3):
        alone = x[b, mask[b]][None]
        agree(disturbed.tokens[b, mask[b]], layer(alone, alone, None).tokens[0])


def test_independent_projections_mix_no_tokens_and_dependent_ones_do():
    x = torch.randn(2, 30, DIM).double()
    changed = x.clone()
    changed[:, 0] += 1.0
    for form, mixes in (("independent", False), ("dependent", True)):
        layer = build(form)
        moved = (layer(x, x, None).tokens - layer(changed, changed, None).tokens).abs().amax((0, 2))
        assert moved[0] > 1e-3
        assert bool(moved[1:].max() > 1e-12) is mixes


def test_a_causal_token_sees_the_mean_of_its_past_only():
    layer, x = build("causal"), torch.randn(2, 30, DIM).double()
    shuffled = x.clone()
    shuffled[:, :10] = x[:, torch.randperm(10)]
    ours, theirs = layer(x, x, None).tokens, layer(shuffled, shuffled, None).tokens
    agree(ours[:, 9:], theirs[:, 9:])
    assert (ours[:, :9] - theirs[:, :9]).abs().max() > 1e-3


@pytest.mark.parametrize("form", FORMS)
def test_evaluation_returns_the_same_tokens_and_no_loss(form):
    layer, x = build(form), torch.randn(2, 30, DIM).double()
    trained, evaluated = layer(x, x, None), layer.eval()(x, x, None)
    assert set(trained.losses) == {"ksvd"}
    assert dict(evaluated.losses) == {}
    assert torch.equal(trained.tokens, evaluated.tokens)


@pytest.mark.parametrize("form", FORMS)
def test_bf16_autocast_stays_near_fp32(path, form):
    layer, x = build(form).float(), torch.randn(3, 100, DIM)
    mask = paddings(100)["ends"]
    exact = layer(x, x, mask)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = layer(x, x, mask)
        (near.tokens.float().sum() + near.losses["ksvd"]).backward()
    assert (near.tokens - exact.tokens)[mask].norm() / exact.tokens[mask].norm() < 0.02
    assert near.losses["ksvd"].dtype == torch.float32
    assert near.losses["ksvd"].item() == pytest.approx(exact.losses["ksvd"].item(), rel=0.05)
    assert all(
        p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in layer.parameters()
    )


@pytest.mark.parametrize("size", [1e-4, 1e4])
def test_only_the_direction_of_queries_and_keys_counts(size):
    layer, x = build("independent"), torch.randn(2, 30, DIM).double()
    before = layer(x, x, None)
    with torch.no_grad():
        layer.query_key.weight.mul_(size)
        layer.query_key.bias.mul_(size)
    after = layer(x, x, None)
    agree(after.tokens, before.tokens)
    agree(after.losses["ksvd"], before.losses["ksvd"])


@pytest.mark.parametrize("form", FORMS)
def test_under_autocast_only_what_runs_over_tokens_is_in_half_precision(path, form):
    n = 97
    layer, x = build(form).float(), torch.randn(3, n, DIM)
    products = in_half_precision(lambda: layer(x, x, None))
    assert products
    assert all(any({n, 3 * n} & {*shape} for shape in shapes) for _, shapes in products)
