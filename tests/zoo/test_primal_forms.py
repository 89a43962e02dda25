"""The forms of Primal-Attention, compared with the theory of KSVD and with loops."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from tests.zoo import primal_oracle
from tests.zoo.oracle import DIM, HEADS, by_sample, ragged, valid
from tests.zoo.oracle import agree as agree_at_leaves
from tests.zoo.primal_oracle import agree, agree_with_gradients, build, expected, make
from zoo.contract import Size, Unsupported
from zoo.feature_maps import feature_maps
from zoo.variants.primal import Primal
from zoo.variants.primal_forms import are_plain

WIDTH = 3
FORMS = ["dependent", "independent", "moments"]


def one_head(name: str, form: str, max_len: int, **options) -> Primal:
    size = Size(dim=WIDTH, heads=1, max_len=max_len, causal=False, dropout=0.0)
    options = {"rank": 2, "rank_multi": 10, "eta": 1.0, "trace": "data"} | options
    return make(form, size, feature_map=name, **options).double()


@torch.no_grad()
def solve(layer: Primal, x: torch.Tensor, context: torch.Tensor) -> tuple[torch.Tensor, ...]:
    phi, n, m = layer.phi, x.shape[1], context.shape[1]
    phi_q = phi(layer.query_key(x[0])[:, :WIDTH])
    phi_k = phi(layer.query_key(context[0])[:, WIDTH:])
    kernel = phi_q @ phi_k.T
    u, s, vt = torch.linalg.svd(kernel)
    u, s, v = u[:, :2], s[:2], vt[:2].T
    for side, target, tokens in ((0, phi_k.T @ v, context), (1, phi_q.T @ u, x)):
        if layer.by_features:
            # W_e|X = Phi_k^T X W_e / n.
            target = torch.linalg.solve(x[0], n * (v, u)[side])
        elif layer.projections == "dependent":
            sampled = tokens[0, primal_oracle.positions(tokens.shape[1], 20)]
            sampled = sampled if layer.features == WIDTH else phi(sampled)
            target = torch.linalg.pinv(sampled.T) @ target
        layer.directions[side, 0] = target
    scale = (n * m) ** 0.5 / s
    inverses = {"squared": torch.sqrt, "softplus": lambda x: x.expm1().log()}
    layer.scales.copy_(inverses.get(layer.lambda_form, torch.log)(scale)[None])
    layer.out.weight.copy_(torch.eye(WIDTH))
    layer.out.bias.zero_()
    layer.merge.bias.zero_()
    return kernel, s, kernel @ v, kernel.T @ u


def solved(name: str, form: str, **options):
    """A layer at the exact KSVD solution for x, with x, K V and K^T U.

    Tokens are few enough for any V to be a linear function of them, which `moments` needs.
    """
    n = WIDTH if form == "moments" else 20
    layer, x = one_head(name, form, n, **options), torch.randn(1, n, WIDTH).double()
    return layer, x, *solve(layer, x, x)[2:]


VARIED = [
    *(("cosine", form, {"ksvd_mean": mean, "lambda_form": shape})
      for form in ("dependent", "independent") for mean in ("batch", "sample")
      for shape in ("squared", "exponential", "softplus")),
    *((name, form, {}) for name in sorted(feature_maps.names()) for form in FORMS),
]  # fmt: skip


@pytest.mark.parametrize(("name", "form", "options"), VARIED)
def test_the_primal_is_the_dual_and_the_objective_is_zero_at_the_solution_and_not_next_to_it(
    name, form, options
):
    layer, x, dual_e, dual_r = solved(name, form, **options)
    zeros = torch.zeros(WIDTH, 2)
    for side, dual in enumerate((dual_e, dual_r)):
        merge = [zeros, zeros]
        merge[side] = torch.eye(WIDTH, 2)
        with torch.no_grad():
            layer.merge.weight.copy_(torch.cat(merge, dim=1))
        agree(layer(x, x, None).tokens[0, :, :2], dual)
    assert layer(x, x, None).losses["ksvd"] < 1e-18
    if not options or options["lambda_form"] == "squared":
        layer.scales.data.neg_()
        assert layer(x, x, None).losses["ksvd"] < 1e-18
    for perturbed in (layer.scales, layer.directions, layer.query_key.weight):
        before = perturbed.detach().clone()
        with torch.no_grad():
            perturbed.mul_(1 + 0.1 * torch.rand_like(perturbed))
            assert layer(x, x, None).losses["ksvd"] > 1e-9
            perturbed.copy_(before)


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
@pytest.mark.parametrize(("sides", "index"), [("right", 0), ("left", 1)])
def test_one_side_is_both_with_zeros_for_the_other_and_the_same_loss(sides, index, backend):
    layer = build("dependent", sides=sides, backend=backend)
    both = build("dependent", backend=backend)
    state = layer.state_dict()
    weight = torch.zeros_like(both.merge.weight)
    weight[:, 3 * index : 3 * index + 3] = state["merge.weight"]
    both.load_state_dict(state | {"merge.weight": weight})
    x = torch.randn(2, 30, DIM).double()
    ours, theirs = layer(x, x, ragged(30)), both(x, x, ragged(30))
    agree(ours.tokens, theirs.tokens)
    agree(ours.losses["ksvd"], theirs.losses["ksvd"])
    gradients = torch.autograd.grad(ours.tokens.sum(), layer.directions)[0].abs().amax((1, 2, 3))
    assert gradients[index] > 0
    assert gradients[1 - index] == 0


@pytest.mark.parametrize("form", [*FORMS, "causal"])
def test_the_literal_form_is_the_folded_one_for_a_map_of_another_width(form):
    x, results = torch.randn(2, 63, DIM).double().requires_grad_(), []
    layer, mask = build(form, feature_map="polynomial"), ragged(63)
    for layer.backend in ("literal", "folded"):
        tokens, losses = layer(x, x, mask)
        results.append([valid(tokens, mask), losses["ksvd"]])
    agree_with_gradients(*results, [x, *layer.parameters()])


def test_orthonormal_columns_and_a_factor_give_the_stated_norms():
    for factor in (1.0, 0.5):
        layer = build("dependent", initialisation="orthonormal", initial_scale=factor)
        columns = layer.directions[0, 0]
        torch.testing.assert_close(columns.mT @ columns, factor**2 * torch.eye(3).double(),
                                   rtol=1e-5, atol=1e-6)  # fmt: skip
    norms = build("dependent", initial_scale=0.5).directions.norm(dim=(2, 3))
    torch.testing.assert_close(norms, torch.full((2, HEADS), 0.5).double(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("backend", ["folded", "literal"])
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_the_causal_form_with_moments_is_its_definition(padded, backend):
    layer = build("causal moments", trace="data", backend=backend)
    x = torch.randn(2, 40, DIM).double().requires_grad_()
    mask, objectives = (ragged(40) if padded else None), []

    def formula(sample: torch.Tensor) -> torch.Tensor:
        heads = []
        for head in range(HEADS):
            prefixes = (sample[: i + 1] for i in range(len(sample)))
            results = [primal_oracle.scores(layer, prefix, prefix, head) for prefix in prefixes]
            e, r = (torch.stack([result[side][-1] for result in results]) for side in (0, 1))
            traces = torch.stack([torch.trace(w_e.T @ w_r) for _, _, w_e, w_r in results])
            scale = layer.scales[head]
            energy = ((e * scale) ** 2).sum(1) / 2 + ((r * scale) ** 2).sum(1) / 2
            objectives.append(energy - traces)
            heads.append(layer.merge(torch.cat([e, r], dim=1)))
        return layer.out(torch.cat(heads, dim=1))

    trained = [part for part in layer.parameters() if part is not layer.scales]
    tokens = valid(layer(x, x, mask).tokens, mask)
    agree_at_leaves(tokens, by_sample(formula, x, mask), x, *trained)
    objectives.clear()
    by_sample(formula, x, mask)
    loss = layer.eta * torch.cat(objectives).mean() ** 2
    ours = layer(x, x, mask).losses["ksvd"]
    agree_at_leaves(ours, loss, x, layer.directions, layer.scales)


def test_the_last_causal_output_with_moments_is_that_of_the_bidirectional_form():
    x, outputs = torch.randn(2, 25, DIM).double(), []
    for form in ("causal moments", "moments"):
        torch.manual_seed(6)
        outputs.append(build(form)(x, x, None).tokens[:, -1])
    agree(*outputs)


N, M = 12, 20
MASK = torch.arange(M) < torch.tensor([[M], [M - 7]])


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(torch.randn(2, n, DIM).double().requires_grad_() for n in (N, M))


@pytest.mark.parametrize("name", sorted(feature_maps.names()))
def test_scores_are_the_left_singular_vectors_and_the_objective_is_zero_at_the_solution(name):
    layer = one_head(name, "dependent", M, sides="right")
    x, context = torch.randn(1, N, 3).double(), torch.randn(1, M, 3).double()
    kernel, s, dual_e, r = solve(layer, x, context)
    layer.merge.weight.data.copy_(torch.eye(3, 2))
    e, losses = layer(x, context, None)
    agree(e[0, :, :2], dual_e)
    assert losses["ksvd"] < 1e-18
    # Brought to x through the kernel, the scores of keys are the scores of queries again.
    agree(kernel @ r, dual_e * s)
    # Stationary: a hundred times the step is ten thousand times the objective.
    change, steps = torch.randn_like(layer.directions), []
    for size in (1e-4, 1e-2):
        with torch.no_grad():
            layer.directions.add_(size * change)
            steps.append(layer(x, context, None).losses["ksvd"].sqrt())
            layer.directions.sub_(size * change)
    assert steps[1] / steps[0] == pytest.approx(1e4, rel=1e-3)


@pytest.mark.parametrize("trace", ["weights", "data"])
@pytest.mark.parametrize("mean", ["batch", "sample"])
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("form", ["dependent", "moments"])
def test_outputs_and_losses_of_cross_attention_are_of_the_equations(form, padded, mean, trace):
    layer, (x, context) = build(form, trace=trace, ksvd_mean=mean), inputs()
    mask = MASK if padded else None
    tokens, losses = layer(x, context, mask)
    theirs = expected(layer, x, context, mask)
    agree_with_gradients([tokens, losses["ksvd"]], theirs, [x, context, *layer.parameters()])


@pytest.mark.parametrize(("form", "options"), [
    ("causal", {}), ("dependent", {"sides": "left"}), ("independent", {}),
])  # fmt: skip
def test_a_form_without_cross_attention_rejects_another_context(form, options):
    x, context = inputs()
    with pytest.raises(Unsupported):
        build(form, **options)(x, context[:, :N], None)


def test_a_weight_is_read_only_from_a_linear_layer_that_nothing_has_changed():
    linear = nn.Linear(3, 4)
    assert are_plain(linear, nn.Linear(4, 4))
    changed = [copy.deepcopy(linear) for _ in range(4)]
    changed[0].register_forward_hook(lambda *_: None)
    changed[1].forward = lambda x: x
    nn.utils.parametrizations.weight_norm(changed[2])
    prune.l1_unstructured(changed[3], "weight", 0.5)
    for module in (*changed, nn.Bilinear(1, 1, 1), nn.Identity()):
        assert not are_plain(linear, module)
