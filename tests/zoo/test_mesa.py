"""MesaNet's layer against its definition, token by token."""

from functools import partial

import pytest
import torch

import zoo
from tests.zoo.oracle import (
    DIM,
    HEADS,
    PADDED,
    WIDTH,
    agree,
    by_sample,
    draw,
    gated,
    gradients,
    ragged,
    valid,
)
from zoo.variants.mesa import Mesa, regress


def regressions(q, k, v, alpha, beta, penalty):
    """The outputs of one head: the normal equations of all tokens so far, each by its inverse."""
    rows = []
    for i in range(len(q)):
        gates = torch.cat([alpha[1 : i + 1].flip(0).cumprod(0).flip(0), alpha.new_ones(1)])
        keys, weights = k[: i + 1], (gates * beta[: i + 1])[:, None]
        system = (weights * keys).T @ keys + penalty.diag()
        rows.append((weights * v[: i + 1]).T @ keys @ system.inverse() @ q[i])
    return torch.stack(rows)


def by_the_formula(layer, x):
    """Without padding, head by head."""
    q, k, v = layer.query_key_value(x).unflatten(-1, (3, HEADS, WIDTH)).unbind(1)
    q, k = (part / part.norm(dim=-1, keepdim=True) for part in (q, k))
    alpha, beta = layer.gates(x).sigmoid().chunk(2, -1)
    penalty = (1 + layer.penalty.exp()).log().unflatten(0, (HEADS, WIDTH)) + 0.25
    inputs = [(*(x[:, h] for x in (q, k, v, alpha, beta)), penalty[h]) for h in range(HEADS)]
    y = torch.stack([regressions(*terms) for terms in inputs], 1)
    y = y - y.mean(-1, keepdim=True)
    y = y / (y.square().mean(-1, keepdim=True) + layer.norm.eps).sqrt()
    y, gate = y.flatten(1) * layer.norm.weight + layer.norm.bias, layer.gate(x)
    return layer.out(gate * gate.sigmoid() * y)


@PADDED
@pytest.mark.parametrize(
    ("n", "chunk"), [(1, 16), (63, 8), (100, 16), pytest.param(1000, 16, marks=pytest.mark.slow)]
)
def test_output_and_gradients_are_those_of_the_definition(n, chunk, padded):
    layer, x = gated(Mesa, causal=True, chunk=chunk), draw(n)
    mask = ragged(n, 1) if padded else None
    torch.nn.init.normal_(layer.penalty)
    out = valid(layer(x, mask=mask).tokens, mask)
    expected = by_sample(partial(by_the_formula, layer), x, mask)
    inputs = [x, *layer.parameters()]
    agree(out, expected, *inputs, outputs=(1e-9, 1e-11), slopes=(1e-7, 1e-9))


def test_lambda_starts_at_one():
    layer = zoo.create("mesa", dim=DIM, heads=HEADS, max_len=9, causal=True)
    torch.testing.assert_close(
        layer._penalty(torch.zeros(1, HEADS, 1, WIDTH)), torch.ones(HEADS, WIDTH)
    )


def terms(n, dtype):
    q, k, v = torch.randn(3, 1, 1, n, WIDTH).to(dtype)
    q, k = (torch.nn.functional.normalize(part, dim=-1) for part in (q, k))
    log_alpha, beta = torch.rand(1, 1, n, 1).log() / 16, torch.rand(1, 1, n, 1)
    return [part.to(dtype).requires_grad_() for part in (q, k, v, log_alpha, beta)]


def test_a_large_penalty_leaves_gated_linear_attention():
    q, k, v, log_alpha, beta = terms(50, torch.float64)
    out = regress(q, k, v, log_alpha, beta, torch.full((1, WIDTH), 1e8).double(), 16)
    state, rows = torch.zeros(WIDTH, WIDTH).double(), []
    for i in range(50):
        one = k[0, 0, i], beta[0, 0, i] * v[0, 0, i]
        state = log_alpha[0, 0, i].exp() * state + torch.outer(*one)
        rows.append(q[0, 0, i] @ state)
    torch.testing.assert_close(1e8 * out[0, 0], torch.stack(rows), rtol=1e-6, atol=1e-6)


def test_fp32_is_near_the_exact_solution_of_many_tokens():
    wide = terms(500, torch.float64)
    narrow = [part.detach().float().requires_grad_() for part in wide]
    penalty = torch.full((1, WIDTH), 0.25)
    out = regress(*narrow, penalty, 16)[0, 0]
    alone = [part[0, 0] for part in wide]
    exact = regressions(*alone[:3], alone[3][:, 0].exp(), alone[4][:, 0], penalty[0].double())
    assert (out - exact).norm() / exact.norm() < 1e-6
    for one, other in zip(gradients(out, *narrow), gradients(exact, *wide), strict=True):
        assert (one - other).norm() <= 1e-5 * other.norm()
