"""Retention against its formula, its recurrence, and cases known by hand."""

from functools import partial

import pytest
import torch

from tests.zoo.oracle import (
    DIM,
    FORMS,
    HEADS,
    PADDED,
    WIDTH,
    agree,
    by_sample,
    draw,
    gated,
    ragged,
    valid,
)
from zoo.contract import Size
from zoo.kernels.rotary import apply_rotary
from zoo.registry import UserError
from zoo.variants.retention import Retention, retain


def by_the_formula(layer, x):
    """Without padding; complex numbers turn what the layer rotates in pairs."""
    place = torch.arange(len(x)).double()
    gap = place[:, None] - place
    q, k, v = layer.query_key_value(x).chunk(3, -1)
    theta = 10000.0 ** (-2 * torch.arange(WIDTH // 2).double() / WIDTH)
    turn = torch.polar(torch.ones(len(x), WIDTH // 2).double(), place[:, None] * theta)
    heads = []
    for h, part in enumerate(torch.arange(DIM).chunk(HEADS)):
        gamma = 1 - 2.0 ** (-5 - h)
        fade = gamma ** gap.abs()
        if layer.size.causal:
            fade = fade * (gap >= 0)
        turned = [torch.complex(*side[:, part].chunk(2, -1)) * turn for side in (q, k)]
        scores = (turned[0] @ turned[1].mH).real / WIDTH**0.5
        y = (fade * scores) @ v[:, part]
        spread = (y.var(-1, keepdim=True, unbiased=False) + layer.norm.eps).sqrt()
        normed = (y - y.mean(-1, keepdim=True)) / spread
        heads.append(normed * layer.norm.weight[part] + layer.norm.bias[part])
    gate = layer.gate(x)
    return layer.out(gate * gate.sigmoid() * torch.cat(heads, -1))


@FORMS
@PADDED
@pytest.mark.parametrize("n", [1, 15, 16, 17, 100])
def test_output_and_gradients_are_those_of_the_formula(n, padded, causal):
    layer, x, mask = gated(Retention, causal, chunk=16), draw(n), ragged(n) if padded else None
    out = valid(layer(x, x, mask).tokens, mask)
    expected = by_sample(partial(by_the_formula, layer), x, mask)
    inputs = [x, *layer.parameters()]
    agree(out, expected, *inputs, outputs=(1e-9, 1e-11), slopes=(1e-8, 1e-9))


def test_the_causal_form_is_the_papers_recurrence():
    q, k, v = (torch.randn(2, HEADS, 50, WIDTH).double() for _ in range(3))
    gamma = torch.tensor([1 - 1 / 32, 1 - 1 / 64]).double()[:, None, None]
    state, found = torch.zeros(2, HEADS, WIDTH, WIDTH).double(), []
    for i in range(50):
        state = gamma * state + k[:, :, i, :, None] * v[:, :, i, None, :]
        found.append(torch.einsum("bhe,bhef->bhf", q[:, :, i], state))
    torch.testing.assert_close(retain(q, k, v, 16, True), torch.stack(found, 2))


def test_a_rotation_keeps_lengths_and_knows_distances_only():
    x = torch.randn(1, 1, 1, 6).double().expand(1, 1, 4000, 6)
    turned = apply_rotary(x)[0, 0]
    torch.testing.assert_close(turned.norm(dim=-1), x[0, 0].norm(dim=-1))
    products = (turned[:-7] * turned[7:]).sum(-1)
    torch.testing.assert_close(products, products[0].expand(3993))
    assert (turned[1:] - turned[0]).abs().amax(-1).min() > 1e-3


@FORMS
def test_long_sequences_stay_exact_in_fp32(causal):
    q, k, v = (torch.randn(1, 4, 6000, 2).double() for _ in range(3))
    place = torch.arange(6000)
    # Of the literal sums these will do; 59 has no divisor with a chunk of 128 in common.
    asked = place[::59]
    near = retain(q.float(), k.float(), v.float(), 128, causal)
    # The slowest of four heads forgets half within 178 tokens.
    for h in range(4):
        away = asked[:, None] - place
        fade = (1 - 2.0 ** (-5 - h)) ** away.abs().double()
        fade = fade.masked_fill(away < 0, 0.0) if causal else fade
        exact = (fade * (q[0, h, asked] @ k[0, h].T)) @ v[0, h]
        assert (near[0, h, asked] - exact).norm() / exact.norm() < 1e-6


def test_a_head_of_odd_width_is_refused():
    with pytest.raises(UserError, match="dim=6 over heads=2 leaves 3; choose a dim"):
        Retention(Size(dim=6, heads=2, max_len=9, causal=False, dropout=0.0))
