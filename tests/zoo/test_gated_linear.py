"""Gated linear attention against its recurrence, token by token."""

from functools import partial

import pytest
import torch

from tests.zoo.oracle import (
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
from zoo.kernels.rotary import apply_rotary
from zoo.variants.gated_linear import GatedLinear


def by_the_formula(layer, x):
    """Without padding, head by head, one token after the other."""
    q, k, v = (part.unflatten(-1, (HEADS, -1)) for part in layer.query_key_value(x).chunk(3, -1))
    down, up = layer.forget[0].weight, layer.forget[1]
    alpha = (x @ down.T @ up.weight.T + up.bias).sigmoid() ** (1 / layer.temperature)
    alpha = alpha.unflatten(-1, (HEADS, -1))
    q = q / WIDTH**0.5
    if layer.size.rotary:
        q, k = (apply_rotary(part.transpose(0, 1)[None])[0].transpose(0, 1) for part in (q, k))
    y = steps(q, k, v, alpha)
    if not layer.size.causal:
        diagonal = torch.einsum("nhe,nhe,nhf->nhf", q, k, v)
        y = y + steps(*(part.flip(0) for part in (q, k, v, alpha))).flip(0) - diagonal
    y = y - y.mean(-1, keepdim=True)
    y = y / (y.square().mean(-1, keepdim=True) + layer.norm.eps).sqrt()
    y = y.flatten(1) * layer.norm.weight + layer.norm.bias
    gate = layer.gate(x)
    return layer.out(gate * gate.sigmoid() * y)


def steps(q, k, v, alpha):
    """The paper's recurrence, one token after the other."""
    state, actual = q.new_zeros(HEADS, WIDTH, WIDTH), []
    for query, key, value, decay in zip(q, k, v, alpha, strict=True):
        state = decay[:, :, None] * state + key[:, :, None] * value[:, None, :]
        actual.append(torch.einsum("he,hef->hf", query, state))
    return torch.stack(actual)


@FORMS
@PADDED
@pytest.mark.parametrize("n", [1, 15, 16, 17, 100])
def test_output_and_gradients_are_those_of_the_formula(n, padded, causal):
    # At a temperature of 1 the gates differ, and the state decays, within a chunk.
    layer = gated(GatedLinear, causal, chunk=16, temperature=1.0 if n % 2 else 16.0)
    x, mask = draw(n), ragged(n) if padded else None
    out = valid(layer(x, x, mask).tokens, mask)
    expected = by_sample(partial(by_the_formula, layer), x, mask)
    inputs = [x, *layer.parameters()]
    agree(out, expected, *inputs, outputs=(1e-9, 1e-11), slopes=(1e-8, 1e-9))


@FORMS
@PADDED
def test_rotary_positions_rotate_queries_and_keys(padded, causal):
    layer = gated(GatedLinear, causal, rotary=True, chunk=16)
    x, mask = draw(40), ragged(40) if padded else None
    expected = by_sample(partial(by_the_formula, layer), x, mask)
    torch.testing.assert_close(valid(layer(x, x, mask).tokens, mask), expected)
