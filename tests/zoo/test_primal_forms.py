"""The forms of Primal-Attention that were not published, compared with theory and with loops."""

import itertools

import pytest
import torch

from tests.zoo.oracle import DIM, HEADS, by_sample, ragged, valid
from tests.zoo.oracle import agree as agree_with_gradients
from tests.zoo.primal_oracle import agree, build, make
from zoo.contract import Size
from zoo.feature_maps import feature_maps
from zoo.variants.primal import Primal

WIDTH = 3
FORMS = ["dependent", "independent", "moments"]


def solved(name: str, form: str, **options):
    """A layer of one head at the exact KSVD solution for x, with x, K V and K^T U.

    Tokens are few enough for any V to be a linear function of them, which `moments` needs.
    """
    n = WIDTH if form == "moments" else 20
    size = Size(dim=WIDTH, heads=1, max_len=n, causal=False, dropout=0.0)
    given = {"rank": 2, "rank_multi": 10, "eta": 1.0, "trace": "data"} | options
    layer = make(form, size, feature_map=name, **given).double()
    x = torch.randn(1, n, WIDTH).double()
    phi = feature_maps.find(name)
    with torch.no_grad():
        phi_q, phi_k = (phi(side) for side in layer.query_key(x[0]).chunk(2, dim=1))
        kernel = phi_q @ phi_k.T
        u, s, vt = torch.linalg.svd(kernel)
        u, s, v = u[:, :2], s[:2], vt[:2].T
        targets = torch.stack([phi_k.T @ v, phi_q.T @ u])
        if form == "dependent":
            sampled = x[0] if layer.features == WIDTH else phi(x[0])
            targets = torch.linalg.pinv(sampled.T) @ targets
        if form == "moments":
            # W_e|X = Phi_k^T X W_e / n.
            targets = torch.linalg.solve(x[0], n * torch.stack([v, u]))
        layer.directions.copy_(targets[:, None])
        layer.scales.copy_(parameters_of(n / s, layer.lambda_form)[None])
        layer.out.weight.copy_(torch.eye(WIDTH))
        layer.out.bias.zero_()
        layer.merge.bias.zero_()
    return layer, x, kernel @ v, kernel.T @ u


def parameters_of(scale: torch.Tensor, form: str) -> torch.Tensor:
    """The parameters with which Lambda is `scale`."""
    return {"squared": scale.sqrt(), "exponential": scale.log(), "softplus": scale.expm1().log()}[
        form
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", sorted(feature_maps.names()))
def test_the_primal_is_the_dual_and_the_objective_is_zero_at_the_solution(name, form):
    layer, x, dual_e, dual_r = solved(name, form)
    zeros = torch.zeros(WIDTH, 2)
    for side, dual in enumerate((dual_e, dual_r)):
        merge = [zeros, zeros]
        merge[side] = torch.eye(WIDTH, 2)
        with torch.no_grad():
            layer.merge.weight.copy_(torch.cat(merge, dim=1))
        agree(layer(x, x, None).tokens[0, :, :2], dual)
    assert layer(x, x, None).losses["ksvd"] < 1e-18
    with torch.no_grad():
        layer.directions.mul_(1 + 0.1 * torch.rand_like(layer.directions))
    assert layer(x, x, None).losses["ksvd"] > 1e-8


@pytest.mark.parametrize("form", ["exponential", "softplus"])
def test_the_objective_is_zero_for_every_positive_form_of_lambda(form):
    layer, x, _, _ = solved("cosine", "independent", lambda_form=form)
    assert layer(x, x, None).losses["ksvd"] < 1e-18
    with torch.no_grad():
        layer.scales.add_(0.1)
    assert layer(x, x, None).losses["ksvd"] > 1e-8


def test_lambda_starts_at_the_same_values_in_every_form_but_fixed():
    roots = {}
    for form in ("squared", "exponential", "softplus", "fixed"):
        torch.manual_seed(4)
        roots[form] = build("independent", lambda_form=form).roots()
    for form in ("exponential", "softplus"):
        torch.testing.assert_close(roots[form], roots["squared"], rtol=1e-4, atol=1e-3)
        assert (roots[form] > 0).all()
    assert torch.equal(roots["fixed"], torch.ones_like(roots["fixed"]))
    assert "scales" not in dict(build("independent", lambda_form="fixed").named_parameters())


@pytest.mark.parametrize("backend", ["folded", "literal"])
@pytest.mark.parametrize(("sides", "kept"), [("right", 0), ("left", 1)])
def test_one_side_is_both_with_zeros_for_the_other_and_the_same_loss(sides, kept, backend):
    one = build("dependent", sides=sides, backend=backend)
    both = build("dependent", backend=backend)
    state = one.state_dict()
    weight = torch.zeros_like(both.merge.weight)
    weight[:, 3 * kept : 3 * kept + 3] = state["merge.weight"]
    both.load_state_dict(state | {"merge.weight": weight})
    x = torch.randn(2, 30, DIM).double()
    ours, theirs = one(x, x, ragged(30)), both(x, x, ragged(30))
    agree(ours.tokens, theirs.tokens)
    agree(ours.losses["ksvd"], theirs.losses["ksvd"])
    gradients = torch.autograd.grad(ours.tokens.sum(), one.directions)[0].abs().amax((1, 2, 3))
    assert gradients[kept] > 0
    assert gradients[1 - kept] == 0


@pytest.mark.parametrize("form", [*FORMS, "causal"])
def test_the_literal_form_is_the_folded_one_for_a_map_of_another_width(form):
    x, results = torch.randn(2, 63, DIM).double().requires_grad_(), []
    for backend in ("literal", "folded"):
        torch.manual_seed(2)
        layer = build(form, feature_map="polynomial", backend=backend)
        tokens, losses = layer(x, x, ragged(63))
        loss = losses["ksvd"] + valid(tokens, ragged(63)).square().sum()
        results.append([loss, *torch.autograd.grad(loss, [x, *layer.parameters()])])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_orthonormal_columns_and_a_factor_give_the_stated_norms():
    for factor in (1.0, 0.5):
        layer = build("dependent", initialisation="orthonormal", initial_scale=factor)
        columns = layer.directions[0, 0]
        torch.testing.assert_close(columns.mT @ columns, factor**2 * torch.eye(3).double(),
                                   rtol=1e-5, atol=1e-6)  # fmt: skip
    norms = build("dependent", initial_scale=0.5).directions.norm(dim=(2, 3))
    torch.testing.assert_close(norms, torch.full((2, HEADS), 0.5).double(), rtol=1e-5, atol=0)


def prefix_scores(layer: Primal, x: torch.Tensor):
    """e, r and the trace of each token of a causal layer with moments: all sums as loops."""
    n, width = len(x), layer.size.head_dim
    q, k = (side.unflatten(1, (HEADS, width)) for side in layer.query_key(x).chunk(2, dim=1))
    q, k = q / q.norm(dim=2, keepdim=True), k / k.norm(dim=2, keepdim=True)
    heads = x.unflatten(1, (HEADS, width))
    e, r, traces = [], [], []
    for i, h in itertools.product(range(n), range(HEADS)):
        past = slice(0, i + 1)
        w_e = k[past, h].T @ heads[past, h] @ layer.directions[0, h] / (i + 1)
        w_r = q[past, h].T @ heads[past, h] @ layer.directions[1, h] / (i + 1)
        e.append(q[i, h] @ w_e)
        r.append(k[i, h] @ w_r)
        traces.append(torch.trace(w_e.T @ w_r))
    return *(torch.stack(part).unflatten(0, (n, HEADS)) for part in (e, r)), torch.stack(traces)


@pytest.mark.parametrize("backend", ["folded", "literal"])
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_the_causal_form_with_moments_is_its_definition(padded, backend):
    layer = build("causal moments", trace="data", backend=backend)
    x = torch.randn(2, 40, DIM).double().requires_grad_()
    mask, objectives = (ragged(40) if padded else None), []

    def formula(sample: torch.Tensor) -> torch.Tensor:
        e, r, traces = prefix_scores(layer, sample)
        energy = ((e * layer.scales) ** 2).sum(2) / 2 + ((r * layer.scales) ** 2).sum(2) / 2
        objectives.append(energy.flatten() - traces)
        return layer.out(layer.merge(torch.cat([e, r], dim=2)).flatten(1))

    trained = [part for part in layer.parameters() if part is not layer.scales]
    tokens = valid(layer(x, x, mask).tokens, mask)
    agree_with_gradients(tokens, by_sample(formula, x, mask), x, *trained)
    objectives.clear()
    by_sample(formula, x, mask)
    loss = layer.eta * torch.cat(objectives).mean() ** 2
    ours = layer(x, x, mask).losses["ksvd"]
    agree_with_gradients(ours, loss, x, layer.directions, layer.scales)


def test_the_last_causal_output_with_moments_is_that_of_the_bidirectional_form():
    x, outputs = torch.randn(2, 25, DIM).double(), []
    for form in ("causal moments", "moments"):
        torch.manual_seed(6)
        outputs.append(build(form)(x, x, None).tokens[:, -1])
    agree(*outputs)
