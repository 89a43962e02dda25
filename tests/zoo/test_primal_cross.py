"""Cross-attention of primal: the SVD of the n x m kernel, its definition, and what it rejects."""

import pytest
import torch

from tests.zoo.oracle import DIM, HEADS, WIDTH
from tests.zoo.oracle import agree as agree_with_gradients
from tests.zoo.primal_oracle import agree, build, positions
from zoo.contract import Size, Unsupported
from zoo.feature_maps import feature_maps
from zoo.variants.primal import Primal

N, M = 12, 20
MASK = torch.arange(M) < torch.tensor([[M], [M - 7]])
FORMS = pytest.mark.parametrize("form", ["dependent", "moments"])


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(torch.randn(2, n, DIM).double().requires_grad_() for n in (N, M))


@pytest.mark.parametrize("name", sorted(feature_maps.names()))
def test_scores_are_the_left_singular_vectors_and_the_objective_is_zero_at_the_solution(name):
    size = Size(dim=3, heads=1, max_len=M, causal=False, dropout=0.0)
    options = {"rank": 2, "rank_multi": 10, "eta": 1.0, "trace": "data", "sides": "right"}
    layer = Primal(size, feature_map=name, **options).double()
    x, context = torch.randn(1, N, 3).double(), torch.randn(1, M, 3).double()
    phi = feature_maps.find(name)
    with torch.no_grad():
        phi_q = phi(layer.query_key(x[0])[:, :3])
        phi_k = phi(layer.query_key(context[0])[:, 3:])
        kernel = phi_q @ phi_k.T
        u, s, vt = torch.linalg.svd(kernel)
        u, s, v = u[:, :2], s[:2], vt[:2].T
        for side, target, tokens in ((0, phi_k.T @ v, context), (1, phi_q.T @ u, x)):
            sampled = tokens[0, positions(tokens.shape[1], M)]
            sampled = sampled if layer.features == 3 else phi(sampled)
            layer.directions[side, 0] = torch.linalg.pinv(sampled.T) @ target
        layer.merge.weight.copy_(torch.eye(3, 2))
        layer.merge.bias.zero_()
        layer.out.weight.copy_(torch.eye(3))
        layer.out.bias.zero_()
        layer.scales.copy_(((N * M) ** 0.5 / s).sqrt()[None])
        e, losses = layer(x, context, None)
        r = phi_k @ (phi_q.T @ u)
    agree(e[0, :, :2], kernel @ v)
    assert losses["ksvd"] < 1e-18
    # Brought to x through the kernel, the scores of keys are those of queries again.
    agree(kernel @ r, (kernel @ v) * s)
    # Stationary: a hundred times the step is ten thousand times the objective.
    change, steps = torch.randn_like(layer.directions), []
    for size in (1e-4, 1e-2):
        with torch.no_grad():
            layer.directions.add_(size * change)
            steps.append(layer(x, context, None).losses["ksvd"].sqrt())
            layer.directions.sub_(size * change)
    assert steps[1] / steps[0] == pytest.approx(1e4, rel=1e-3)


def parts(layer: Primal, x: torch.Tensor, c: torch.Tensor, head: int):
    """e of the tokens x, r of the context c, and the W_e and W_r they come from."""
    part = slice(head * WIDTH, (head + 1) * WIDTH)
    q, k = layer.query_key(x)[:, :DIM][:, part], layer.query_key(c)[:, DIM:][:, part]
    q, k = q / q.norm(dim=1, keepdim=True), k / k.norm(dim=1, keepdim=True)
    w_e, w_r = layer.directions[:, head]
    if layer.dependent:
        w_e = c[positions(len(c), len(w_e))][:, part].T @ w_e
        w_r = x[positions(len(x), len(w_r))][:, part].T @ w_r
    else:
        w_e, w_r = k.T @ c[:, part] @ w_e / len(c), q.T @ x[:, part] @ w_r / len(x)
    return q @ w_e, k @ w_r, w_e, w_r


@pytest.mark.parametrize("mean", ["batch", "sample"])
@FORMS
def test_outputs_and_losses_are_those_of_the_definition(form, mean):
    layer = build(form, trace="data", ksvd_mean=mean)
    (x, context), tokens, sums = inputs(), [], []
    for b in range(2):
        heads = [parts(layer, x[b], context[b, MASK[b]], head) for head in range(HEADS)]
        merged = [torch.nn.functional.linear(e, layer.merge.weight[:, :3], layer.merge.bias)
                  for e, *_ in heads]  # fmt: skip
        tokens.append(layer.out(torch.cat(merged, dim=1)))
        energy = [
            (part * scale).square().sum() / 2
            for (e, r, *_), scale in zip(heads, layer.scales, strict=True)
            for part in (e, r)
        ]
        trace = torch.stack([torch.trace(w_e.T @ w_r) for *_, w_e, w_r in heads])
        count = (N * MASK[b].sum()).double().sqrt()
        sums.append(torch.stack([torch.stack(energy).sum() / HEADS, trace.mean(), count]))
    energy, trace, count = torch.stack(sums).unbind(1)
    j = energy / count - trace
    if mean == "batch":
        j = (energy.sum() / count.sum() - trace.mean())[None]
    attended = layer(x, context, MASK)
    trained = [x, context, layer.directions, layer.query_key.weight]
    agree_with_gradients(attended.tokens, torch.stack(tokens), *trained)
    loss = layer(x, context, MASK).losses["ksvd"]
    torch.testing.assert_close(loss, layer.eta * j.square().mean(), rtol=1e-10, atol=0)


@FORMS
def test_an_output_depends_on_its_own_token_and_the_context_alone(form):
    layer, (x, context) = build(form).eval(), inputs()
    output = layer(x, context, MASK).tokens[0, 3].sum()
    of_x, of_context = torch.autograd.grad(output, (x, context))
    assert of_x[0, 3].abs().min() > 0
    of_x[0, 3] = 0
    assert not of_x.any()
    assert of_context[0].any()
    assert not of_context[1].any()


@FORMS
def test_the_sides_right_and_both_give_the_same_output_with_the_same_weights(form):
    both, right = build(form), build(form, sides="right")
    state = both.state_dict()
    right.load_state_dict(state | {"merge.weight": state["merge.weight"][:, :3]})
    x, context = inputs()
    for one, other in zip(*(layer(x, context, MASK) for layer in (both, right)), strict=True):
        assert torch.equal(one["ksvd"], other["ksvd"]) if isinstance(one, dict) else True
    agree(both(x, context, MASK).tokens, right(x, context, MASK).tokens)


@pytest.mark.parametrize(
    ("form", "options", "message"),
    [
        ("causal", {}, "causal primal attends to its own input only; give causal=False"),
        ("dependent", {"sides": "left"}, "sides=left has no score .* give sides=right"),
        ("independent", {}, "outputs that do not depend on the context; give dependent"),
    ],
)
def test_a_form_without_cross_attention_rejects_another_context(form, options, message):
    x, context = inputs()
    with pytest.raises(Unsupported, match=message):
        build(form, **options)(x, context[:, :N], None)
