"""Primal-Attention compared with its equations, evaluated for one sample and head at a time."""

import itertools

import pytest
import torch
from torch import Tensor

from tests.zoo.oracle import DIM, in_half_precision
from tests.zoo.primal_oracle import OPTIONS, agree, build, positions
from zoo.kernels import cosine_map
from zoo.variants.primal import Primal

FORMS = ["dependent", "independent", "causal"]


def paddings(n: int) -> dict[str, torch.Tensor | None]:
    """No padding, padding at the end, and padding before, between and after real tokens."""
    ends = torch.arange(n) < torch.tensor([n, n - n // 3, n // 2])[:, None]
    holes = torch.rand(3, n) < 0.6
    holes[0, 0], holes[1, -1], holes[2, : n // 2] = False, False, False
    holes[:, n // 2 + 1] = True
    return {"full": None, "ends": ends, "holes": holes}


def real_tokens(sample: Tensor, mask: Tensor | None) -> Tensor:
    """The tokens of one sample that are not padding."""
    return sample if mask is None else sample[mask]


def scores(layer: Primal, x: Tensor, head: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """e and r (n, s) of one head for the real tokens x (n, d), and the W_e, W_r they come from."""
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
        real = torch.ones(x.shape[1], dtype=torch.bool) if mask is None else mask[b]
        heads = []
        for head in range(layer.size.heads):
            e, r, _, _ = scores(layer, x[b][real], head)
            heads.append(layer.merge(torch.cat([e, r], dim=1)))
        tokens = layer.out(torch.cat(heads, dim=1))
        out = out.index_put((torch.tensor(b), real.nonzero()[:, 0]), tokens)
    return out


def literal_loss(layer: Primal, x: Tensor, mask: Tensor | None) -> Tensor:
    """Eta times J^2, with the order of averaging that the layer's options name."""
    energies, traces = [], []
    for b in range(len(x)):
        energy, trace = [], []
        for head in range(layer.size.heads):
            real = real_tokens(x[b], None if mask is None else mask[b])
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


@pytest.fixture(params=["chunked", "plain", "literal"])
def path(request, monkeypatch):
    """The implementation: in `cosine_map`, of two that an eager layer on a CPU uses, or literal."""
    if request.param == "literal":
        monkeypatch.setitem(OPTIONS, "backend", "literal")
    if request.param == "plain":
        monkeypatch.setattr(cosine_map, "chunked", cosine_map.plain)
    # Short inputs too: otherwise both would be `plain` for them.
    monkeypatch.setattr(cosine_map, "CHUNKED_FROM", 1)


CASES = list(itertools.product(FORMS, ["weights", "data"], ["batch", "sample"]))


@pytest.mark.parametrize("n", [pytest.param(63, marks=pytest.mark.slow), 1000])
@pytest.mark.parametrize("padding", ["full", pytest.param("ends", marks=pytest.mark.slow), "holes"])
@pytest.mark.parametrize(("form", "trace", "mean"), CASES, ids=["-".join(c) for c in CASES])
def test_outputs_losses_and_gradients_are_those_of_the_equations(
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
    weights = torch.randn(3, n, DIM).double()
    for mine, other in pairs:
        agree(mine, other)
        # Tokens and loss separately: a large gradient of one would hide a wrong one of the other.
        gradients = [
            torch.autograd.grad(
                (part * (weights if part.ndim else 1)).sum(),
                list(inputs.values()),
                retain_graph=True,
                materialize_grads=True,
            )
            for part in (mine, other)
        ]
        for gradient, expected in zip(*gradients, strict=True):
            assert (gradient - expected).abs().max() <= 1e-10 * max(1, expected.abs().max())


@pytest.mark.parametrize("mean", ["batch", "sample"])
@pytest.mark.parametrize("form", FORMS)
def test_samples_without_a_real_token_give_a_finite_loss_and_finite_gradients(path, form, mean):
    layer, x = build(form, ksvd_mean=mean), torch.randn(3, 20, DIM).double().requires_grad_()
    for lengths in ([20, 0, 5], [0, 0, 0]):
        tokens, losses = layer(x, x, torch.arange(20) < torch.tensor(lengths)[:, None])
        inputs = [x, *layer.parameters()]
        gradients = torch.autograd.grad(
            tokens.sum() + losses["ksvd"], inputs, materialize_grads=True
        )
        assert all(part.isfinite().all() for part in (tokens, losses["ksvd"], *gradients))


@pytest.mark.parametrize("trace", ["weights", "data"])
def test_the_padding_of_a_sample_without_a_real_token_does_not_change_the_loss(trace):
    layer, x = build("dependent", trace=trace), torch.randn(2, 20, DIM).double()
    mask = torch.tensor([[True], [False]]).expand(2, 20)
    other = torch.where(mask[..., None], x, 10 * torch.randn_like(x))
    losses = [layer(tokens, tokens, mask).losses["ksvd"] for tokens in (x, other)]
    torch.testing.assert_close(*losses, rtol=1e-12, atol=0)


@pytest.mark.parametrize("form", FORMS)
def test_the_trace_of_the_data_is_the_trace_of_the_weights_unless_they_depend_on_it(form):
    x = torch.randn(3, 40, DIM).double()
    losses = []
    for trace in ("weights", "data"):
        torch.manual_seed(1)
        losses.append(build(form, trace=trace)(x, x, None).losses["ksvd"].item())
    assert (losses[0] == losses[1]) is (form != "dependent")


def test_the_two_orders_of_averaging_agree_on_equal_samples_only():
    x = torch.randn(3, 40, DIM).double()
    equal = x[:1].expand_as(x).contiguous()
    for tokens, same in ((x, False), (equal, True)):
        losses = []
        for mean in ("batch", "sample"):
            torch.manual_seed(1)
            layer = build("dependent", ksvd_mean=mean)
            losses.append(layer(tokens, tokens, None).losses["ksvd"].item())
        assert (abs(losses[0] - losses[1]) < 1e-12) is same


def test_eta_scales_the_loss_and_nothing_else():
    x = torch.randn(3, 40, DIM).double()
    results = []
    for eta in (0.0, 0.5, 1.0):
        torch.manual_seed(1)
        results.append(build("dependent", eta=eta)(x, x, None))
    zero, half, one = (attended.losses["ksvd"].item() for attended in results)
    assert zero == 0.0
    assert one > 0.0
    assert half == pytest.approx(one / 2)
    assert torch.equal(results[0].tokens, results[2].tokens)


@pytest.mark.parametrize("padding", ["ends", "holes"])
@pytest.mark.parametrize("form", FORMS)
def test_padded_tokens_change_neither_output_nor_loss(path, form, padding):
    layer, x = build(form), torch.randn(3, 63, DIM).double()
    mask = paddings(63)[padding]
    other = torch.where(mask[:, :, None], x, 1e8 * torch.randn_like(x))
    before, after = layer(x, x, mask), layer(other, other, mask)
    assert torch.equal(before.tokens[mask], after.tokens[mask])
    assert torch.equal(before.losses["ksvd"], after.losses["ksvd"])
    for b in range(3):
        truncated = x[b, mask[b]][None]
        agree(after.tokens[b, mask[b]], layer(truncated, truncated, None).tokens[0])


def test_independent_projections_mix_no_tokens_and_dependent_ones_do():
    x = torch.randn(2, 30, DIM).double()
    changed = x.clone()
    changed[:, 0] += 1.0
    for form, mixes in (("independent", False), ("dependent", True)):
        layer = build(form)
        difference = layer(x, x, None).tokens - layer(changed, changed, None).tokens
        by_token = difference.abs().amax((0, 2))
        assert by_token[0] > 1e-3
        assert bool(by_token[1:].max() > 1e-12) is mixes


def test_the_chunked_map_is_used_for_long_inputs_and_not_for_several_sets_of_parameters(
    monkeypatch,
):
    used, chunked = [], cosine_map.chunked
    monkeypatch.setattr(cosine_map, "chunked", lambda *given, **named: (
        used.append(given[0].shape[1]) or chunked(*given, **named)
    ))  # fmt: skip
    layers = [build("dependent").eval() for _ in range(2)]
    x = torch.randn(2, cosine_map.CHUNKED_FROM, DIM).double()
    short = x[:, 1:]
    layers[0](short, short, None)
    assert used == []
    separate = torch.stack([layer(x, x, None).tokens for layer in layers])
    assert used == [cosine_map.CHUNKED_FROM] * 2
    # An autograd function that loops over samples cannot be vectorised.
    state = torch.func.stack_module_state(layers)

    def tokens(*state: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(layers[0], state, (x, x, None)).tokens

    agree(torch.func.vmap(tokens)(*state), separate)
    assert len(used) == 2


def test_a_causal_output_depends_on_the_mean_of_the_tokens_so_far():
    layer, x = build("causal"), torch.randn(2, 30, DIM).double()
    shuffled = x.clone()
    shuffled[:, :10] = x[:, torch.randperm(10)]
    before, after = layer(x, x, None).tokens, layer(shuffled, shuffled, None).tokens
    agree(before[:, 9:], after[:, 9:])
    assert (before[:, :9] - after[:, :9]).abs().max() > 1e-3


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


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_the_norm_of_queries_and_keys_does_not_matter(scale):
    layer, x = build("independent"), torch.randn(2, 30, DIM).double()
    before = layer(x, x, None)
    with torch.no_grad():
        layer.query_key.weight.mul_(scale)
        layer.query_key.bias.mul_(scale)
    after = layer(x, x, None)
    agree(after.tokens, before.tokens)
    agree(after.losses["ksvd"], before.losses["ksvd"])


@pytest.mark.parametrize("form", FORMS)
def test_under_autocast_only_products_over_all_tokens_are_in_half_precision(path, form):
    n = 97
    layer, x = build(form).float(), torch.randn(3, n, DIM)
    products = in_half_precision(lambda: layer(x, x, None))
    assert products
    assert all(any({n, 3 * n} & {*shape} for shape in shapes) for _, shapes in products)
