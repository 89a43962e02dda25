"""Every variant against its formula: outputs and gradients, fp32, padding, its matrix.

Then what formulas do not hold: extreme inputs, random features, bounds of gradients.
"""

import copy
import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from tests.zoo import oracle
from tests.zoo.formulas import CASES, Case
from tests.zoo.oracle import FORMS, HEADS, agree, create, decode, draw, gradients, qkv, ragged, size
from zoo.contract import Attention, Unsupported
from zoo.kernels import eager
from zoo.kernels.collisions import collision_probabilities
from zoo.kernels.real_tokens import zero_padding
from zoo.variants import variants

# Layers of published packages treat padding as they do.
OURS = {
    name: variant
    for name, variant in variants.items()
    if not variant.unchecked and not name.endswith("-lib")
}


def layer_of(case: Case, causal: bool, *, rotary: bool = False) -> Attention:
    layer = variants.find(case.name)(size(causal=causal, rotary=rotary), **case.options)
    for name, parameter in layer.double().eval().named_parameters():
        for part, mean in case.random.items():
            if part in name:
                nn.init.normal_(parameter, mean)
    return layer


def compare(case: Case, causal: bool, n: int, *, padded: bool, rotary: bool = False) -> None:
    layer, x = layer_of(case, causal, rotary=rotary), draw(n)
    mask = ragged(n, 1) if padded else None
    out = oracle.valid(layer(x, mask=mask).tokens, mask)
    expected = oracle.by_sample(partial(case.formula, layer), x, mask)
    agree(out, expected, x, *layer.parameters(), outputs=case.outputs, slopes=case.slopes)


def forms(cases: list[Case]):
    return pytest.mark.parametrize(
        ("case", "causal"),
        [
            pytest.param(case, causal, id=f"{case.name} {dict(case.options)}{', causal' * causal}")
            for case in cases
            for causal in variants.find(case.name).traits.forms
        ],
    )


@forms(CASES)
@pytest.mark.parametrize(("n", "padded", "cpu"), [
    (1, False, True), (63, True, True), (100, False, True), (100, True, False),
])  # fmt: skip
def test_output_and_gradients_are_those_of_the_formula(case, causal, n, padded, cpu, monkeypatch):
    if not cpu:  # as on other devices
        monkeypatch.setattr(eager, "on_cpu", lambda x: False)
    compare(case, causal, n, padded=padded)


@pytest.mark.slow
@forms(list({case.name: case for case in reversed(CASES)}.values()))
def test_output_and_gradients_of_many_tokens_are_those_of_the_formula(case, causal):
    compare(case, causal, 600, padded=True)


@forms(CASES)
def test_rotary_positions_are_ranks_among_the_real_tokens(case, causal):
    compare(case, causal, 40, padded=True, rotary=True)


@pytest.mark.parametrize(("name", "causal"), [
    (name, causal) for name, variant in OURS.items() for causal in variant.traits.forms
])  # fmt: skip
def test_padding_is_not_read_and_prompts_and_steps_continue_forward(name, causal):
    dropout = 0.5 if OURS[name].drops_weights else 0.0
    layer = create(name, causal=causal, rotary=True, short_conv=4, dropout=dropout).eval()
    for parameter in layer.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.1)  # a factor of 0 would hide a part
    close = partial(torch.testing.assert_close, rtol=1e-7, atol=1e-7)
    x, after, mask, states = draw(40), draw(3), ragged(40, 1), []
    hidden, prompts = x.where(mask[..., None], torch.nan), [x[b, mask[b]][None] for b in range(2)]
    alone = torch.cat([layer(prompt).tokens[0] for prompt in prompts])
    close(layer(hidden, mask=mask).tokens[mask], alone)
    if not (causal and layer.decodes()):
        return
    for prompt, more in zip(prompts, after.split(1), strict=True):
        expected = layer.eval()(torch.cat([prompt, more], 1)).tokens
        tokens, state = layer.train().prefill(prompt)
        close(torch.cat([tokens, decode(layer, more, state)[0]], 1), expected)
        states.append(state)
    if layer.traits.recurrent:
        close(layer.prefill(hidden, mask)[1], tuple(map(torch.cat, zip(*states, strict=True))))


def test_every_variant_has_a_formula():
    assert {case.name for case in CASES} == OURS.keys() - {"primal", "primal-moments"}


CROSS = [case for case in CASES if variants.find(case.name).traits.cross]


@pytest.mark.parametrize("case", CROSS, ids=lambda case: f"{case.name} {dict(case.options)}")
def test_queries_and_keys_may_differ_in_number(case):
    layer, x, context, mask = layer_of(case, False), draw(5), draw(11), ragged(11)
    pairs = [case.formula(layer, x[b], context[b][mask[b]]) for b in range(2)]
    agree(layer(x, context, mask).tokens, torch.stack(pairs), x, context)


def by_head(case: Case, layer: Attention, *qkv: Tensor) -> Tensor:
    heads = [[case.attend(layer, h, *(x[b, h] for x in qkv)) for h in range(HEADS)] for b in (0, 1)]
    return torch.stack([torch.stack(sample) for sample in heads])


IN_FP32 = [
    *[("linear", 100, 3.0, shift, 1e-5) for shift in (-30.0, 0.0, 30.0)],
    *[("flowformer", 100, 3.0, shift, 1e-4) for shift in (-20.0, 0.0, 20.0)],
    *[("soft", 200, scale, 0.0, 1e-4) for scale in (0.0, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e6)],
    ("performer", 100, 3.0, 0.0, 1e-4), ("cosine", 1000, 1.0, 0.0, 1e-5),
    ("cosformer", 1000, 1.0, 0.0, 1e-5),
]  # fmt: skip


@pytest.mark.parametrize(("name", "n", "scale", "shift", "bound"), IN_FP32)
def test_fp32_is_exact_where_features_are_small_or_large_or_many(name, n, scale, shift, bound):
    case = next(case for case in CASES if case.name == name)
    for causal in variants.find(name).traits.forms:
        layer, inputs = layer_of(case, causal), qkv(n, n, scale, shift)
        inputs = inputs if not layer.shared_qk else [inputs[0], inputs[0], inputs[2]]
        expected = by_head(case, layer, *inputs)
        narrow = [part.detach().float().requires_grad_() for part in inputs]
        narrow = narrow if not layer.shared_qk else [narrow[0], narrow[0], narrow[2]]
        out = copy.deepcopy(layer).float().attend(*narrow, None)
        assert (out - expected).norm() <= bound * expected.norm()
        assert all(part.isfinite().all() for part in gradients(out, *narrow))


@pytest.mark.parametrize("name", ["gated-linear", "retention", "linear", "cosine", "cosformer"])
def test_under_autocast_only_projections_run_in_half_precision(name):
    for causal in (False, True):
        layer, x = variants.find(name)(size(causal=causal)), torch.randn(2, 40, oracle.DIM)
        oracle.projections_alone_are_halved(lambda layer=layer, x=x: layer(x, x, ragged(40)))


REAL = torch.tensor([[True] * 5 + [False] * 2, [True] * 7])
WITHOUT = {
    "conv", "delta", "delta-product", "gated-delta", "gated-linear", "gdn2", "gru", "gsa", "hgrn2",
    "kda", "log-linear", "longformer", "mamba2", "mamba3", "mesa", "mlstm", "none", "retention",
    "rwkv7", "ssd", "yoso",
}  # fmt: skip


def test_the_matrix_of_primal_is_the_kernel_that_it_decomposes():
    layer, x = create("primal", max_len=7).eval(), draw(7)
    q, k = layer.query_key(x).unflatten(-1, (2, 2, 4)).unbind(-3)
    q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    kernel = torch.einsum("nihp,njhp->nhij", q, k)
    assert torch.allclose(layer.matrix(x, x, None), kernel)


WITH = sorted({name for name, variant in variants.items() if not variant.unchecked} - WITHOUT)


OF_OTHER_HEADS = {"primal", "primal-moments", "reformer-lib"}


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("name", sorted({*WITH} - OF_OTHER_HEADS))
def test_the_product_with_the_values_gives_the_outputs(name, rotary):
    mask = torch.tensor([[True, False, False, True, True, False, True], [True] * 7])
    layer, x = create(name, max_len=7, rotary=rotary).eval(), zero_padding(draw(7), mask)
    values = getattr(layer, "context", None) or layer.left_right_value
    v = values(x)[..., -8:].unflatten(-1, (2, 4)).transpose(1, 2)
    outputs = layer.out((layer.matrix(x, x, mask) @ v).transpose(1, 2).flatten(-2))
    assert torch.allclose(outputs[mask], layer(x, x, mask).tokens[mask])


@pytest.mark.parametrize("name", sorted(WITHOUT))
def test_a_variant_that_is_no_product_with_its_values_has_no_matrix(name):
    with pytest.raises(Unsupported, match=f"{name} has no attention matrix"):
        create(name, max_len=7).matrix(*[draw(7)] * 2, REAL)


def test_steps_equal_forward_beyond_the_last_level():
    layer, x = create("log-linear", causal=True, levels=3).eval(), draw(90)
    outputs, state = decode(layer, x)
    torch.testing.assert_close(outputs, layer(x).tokens)
    torch.testing.assert_close(layer.prefill(x)[1], state)


@FORMS
def test_vectors_without_a_direction_give_zero_and_finite_gradients(causal):
    assert create("cosine").power.tolist() == [0.5, 0.5]  # as in the paper
    for name in ("cosine", "yoso"):
        inputs = [part.float() for part in qkv(9, 9, 0.0)]
        out = create(name, causal=causal).float().attend(*inputs, None)
        assert (out == 0).all()
        assert all(gradient.isfinite().all() for gradient in gradients(out, *inputs))
    layer, (q, k, v) = create("cosformer", causal=causal), qkv(9)
    q = torch.cat([-q[:, :, :1].abs(), q[:, :, 1:]], 2)  # no positive coordinate
    out = layer.attend(q, k, v, None)
    assert (out[:, :, 0] == 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients(out, q, k, v))


def test_a_step_of_cosformer_beyond_max_len_has_the_last_position():
    layer = create("cosformer", causal=True, max_len=4).eval()
    x, state = torch.randn(1, layer.size.dim).double(), layer.start(1)
    for _ in range(12):
        tokens, state = layer.step(x, state)
    # Equal tokens are equal values, whatever their weights are, as long as none is negative.
    expected, _ = layer.step(x, layer.start(1))
    torch.testing.assert_close(tokens, expected)


def test_redrawing_changes_training_outputs_only():
    layer, inputs = create("performer", features=16, redraw=True), qkv(9, 9, 0.5)
    initial = layer.projection.clone()
    assert not torch.equal(layer.attend(*inputs, None), layer.attend(*inputs, None))
    case = next(case for case in CASES if case.name == "performer")
    expected = by_head(case, layer.eval(), *inputs)
    torch.testing.assert_close(layer.attend(*inputs, None), expected)
    assert torch.equal(layer.projection, initial)


def test_the_bound_is_the_papers_surrogate_and_lies_below_the_exact_derivative():
    grid = torch.linspace(-0.999, 0.999, 500).double()[None, None, None].requires_grad_()
    sums = (collision_probabilities(grid, 8, flag).sum() for flag in (False, True))
    exact, bound = (torch.autograd.grad(total, grid)[0] for total in sums)
    weights = (1 - torch.arccos(grid) / math.pi) ** 8
    torch.testing.assert_close(bound, 4 * weights)
    torch.testing.assert_close(exact, torch.autograd.grad(weights.sum(), grid)[0])
    assert (bound <= exact).all()
    inputs, slopes = qkv(20), []
    for choice in ("exact", "bound"):
        slopes += gradients(create("yoso", gradient=choice).attend(*inputs, None), inputs[0])
    assert not torch.allclose(*slopes)


@pytest.mark.parametrize("gradient", ["exact", "bound"])
@pytest.mark.parametrize("side", [1.0, -1.0], ids=["parallel", "opposite"])
def test_gradients_are_bounded_where_that_of_arccos_is_not(side, gradient):
    layer = create("yoso", gradient=gradient).float()
    q, _, v = (part.float().detach().requires_grad_() for part in qkv(50))
    for nudge in (0.0, 1e-7, 1e-5, 1e-3):
        k = (side * q + nudge * torch.randn_like(q)).detach().requires_grad_()
        actual = gradients(layer.attend(q, k, v, None), q, k, v)
        reference = gradients(layer.attend(q, torch.randn_like(q).requires_grad_(), v, None), q, v)
        assert all(part.isfinite().all() for part in actual)
        assert actual[0].norm() < 30 * reference[0].norm()
