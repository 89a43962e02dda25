"""Log-linear attention against its formula, pair by pair, and its recurrence."""

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
from zoo.variants.log_linear import LogLinear, weighted_sum


def pairs(q, k, v, alpha, scales):
    """The sums of one head, from all pairs: each has a level, and the gates between both."""
    rows = []
    for i in range(len(q)):
        levels = [min((i ^ j).bit_length(), scales.shape[1] - 1) for j in range(i + 1)]
        gates = alpha[1 : i + 1].flip(0).cumprod(0).flip(0)
        gates = torch.cat([gates, gates.new_ones(1)])
        rows.append((scales[i, levels] * gates * (k[: i + 1] @ q[i])) @ v[: i + 1])
    return torch.stack(rows)


def by_the_formula(layer, x):
    """Without padding, head by head."""
    q, k, v = (part.unflatten(-1, (HEADS, -1)) for part in layer.query_key_value(x).chunk(3, -1))
    alpha = layer.decay(x).sigmoid() ** (1 / layer.temperature)
    scales = (1 + (layer.level_scale * layer.scale(x)).exp()).log().unflatten(-1, (HEADS, -1))
    inputs = q / WIDTH**0.5, k, v, alpha, scales
    heads = [pairs(*(part[:, h] for part in inputs)) for h in range(HEADS)]
    y = torch.stack(heads, 1)
    y = y - y.mean(-1, keepdim=True)
    y = y / (y.square().mean(-1, keepdim=True) + layer.norm.eps).sqrt()
    y = y.flatten(1) * layer.norm.weight + layer.norm.bias
    gate = layer.gate(x)
    return layer.out(gate * gate.sigmoid() * y)


@PADDED
@pytest.mark.parametrize(
    ("n", "options"),
    [
        (1, {}),
        (63, {"chunk": 8, "temperature": 1.0}),
        (100, {"chunk": 16, "levels": 6}),
        (100, {"chunk": 1}),
        pytest.param(1000, {}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_output_and_gradients_are_those_of_the_formula(n, options, padded):
    layer, x = gated(LogLinear, causal=True, **options), draw(n)
    mask = ragged(n, 1) if padded else None
    torch.nn.init.normal_(layer.level_scale)
    out = valid(layer(x, mask=mask).tokens, mask)
    expected = by_sample(partial(by_the_formula, layer), x, mask)
    inputs = [x, *layer.parameters()]
    agree(out, expected, *inputs, outputs=(1e-9, 1e-11), slopes=(1e-8, 1e-9))


@pytest.mark.parametrize("levels", [3, 15])
def test_steps_equal_forward_beyond_the_last_level(levels):
    layer, x = gated(LogLinear, causal=True, levels=levels).eval(), torch.randn(2, 90, DIM).double()
    state, outputs = layer.start(2), []
    for token in x.unbind(1):
        output, state = layer.step(token, state)
        outputs.append(output)
    torch.testing.assert_close(torch.stack(outputs, 1), layer(x).tokens)
    # A level is occupied where the number of tokens has a binary digit of 1.
    occupied = state[0].abs().amax((0, 1, 3, 4)) > 0
    assert not occupied[0]
    if levels == 15:
        assert [int(bit) for bit in occupied[1:8]] == [90 >> level & 1 for level in range(7)]


@pytest.mark.parametrize("strength", [0.0, 1.0, 30.0, 1e3, 1e6])
def test_gates_of_any_strength_are_exact_in_fp32_with_finite_gradients(strength):
    q, k, v = (torch.randn(1, 1, 300, WIDTH) for _ in range(3))
    closed = (torch.arange(300) % 3 == 0)[:, None].float() * torch.rand(1, 1, 300, 1)
    log_alpha = -strength * closed - 0.01 * torch.rand(1, 1, 300, 1)
    narrow = [part.requires_grad_() for part in (q, k, v, log_alpha, torch.rand(1, 1, 300, 15))]
    wide = [part.detach().double().requires_grad_() for part in narrow]
    alone = [part[0, 0] for part in wide]
    exact = pairs(*alone[:3], alone[3][:, 0].exp(), alone[4])
    out = weighted_sum(*narrow, 64, 300)[0, 0]
    assert (out - exact).norm() / exact.norm() < 1e-6
    for one, other in zip(gradients(out, *narrow), gradients(exact, *wide), strict=True):
        assert (one - other).norm() <= 1e-5 * other.norm()


def test_a_fresh_layer_has_a_state_for_each_level():
    layer = zoo.create("log-linear", dim=DIM, heads=HEADS, max_len=9, causal=True)
    assert layer.start(3)[0].shape == (3, HEADS, 15, WIDTH, WIDTH)
