"""Retention against its formula, its recurrence, and simple cases."""

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
from zoo.kernels.delta import decayed_chunks
from zoo.kernels.rotary import apply_rotary
from zoo.registry import UserError
from zoo.variants.retention import Retention, log_gamma


def by_the_formula(layer, x):
    """Without padding; rotations are products of complex numbers."""
    position = torch.arange(len(x)).double()
    distance = position[:, None] - position
    q, k, v = layer.query_key_value(x).chunk(3, -1)
    theta = 10000.0 ** (-2 * torch.arange(WIDTH // 2).double() / WIDTH)
    rotation = torch.polar(torch.ones(len(x), WIDTH // 2).double(), position[:, None] * theta)
    heads = []
    for h, part in enumerate(torch.arange(DIM).chunk(HEADS)):
        gamma = 1 - 2.0 ** (-5 - h)
        decay = gamma ** distance.abs()
        if layer.size.causal:
            decay = decay * (distance >= 0)
        rotated = [torch.complex(*side[:, part].chunk(2, -1)) * rotation for side in (q, k)]
        scores = (rotated[0] @ rotated[1].mH).real / WIDTH**0.5
        y = (decay * scores) @ v[:, part]
        spread = (y.var(-1, keepdim=True, unbiased=False) + layer.norm.eps).sqrt()
        normed = (y - y.mean(-1, keepdim=True)) / spread
        heads.append(normed * layer.norm.weight[part] + layer.norm.bias[part])
    gate = layer.gate(x)
    return layer.out(gate * gate.sigmoid() * torch.cat(heads, -1))


def retain(q, k, v, causal):
    gamma = log_gamma(q.shape[1]).to(q)[None, :, None, None].expand(-1, -1, q.shape[2], -1)
    return decayed_chunks(q, k, v, gamma, chunk=16, causal=causal)


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
    state, actual = torch.zeros(2, HEADS, WIDTH, WIDTH).double(), []
    for i in range(50):
        state = gamma * state + k[:, :, i, :, None] * v[:, :, i, None, :]
        actual.append(torch.einsum("bhe,bhef->bhf", q[:, :, i], state))
    torch.testing.assert_close(retain(q, k, v, True), torch.stack(actual, 2))


def test_a_rotation_preserves_norms_and_depends_on_distances_only():
    x = torch.randn(1, 1, 1, 6).double().expand(1, 1, 4000, 6)
    rotated = apply_rotary(x)[0, 0]
    torch.testing.assert_close(rotated.norm(dim=-1), x[0, 0].norm(dim=-1))
    products = (rotated[:-7] * rotated[7:]).sum(-1)
    torch.testing.assert_close(products, products[0].expand(3993))
    assert (rotated[1:] - rotated[0]).abs().amax(-1).min() > 1e-3


@FORMS
def test_long_sequences_are_exact_in_fp32(causal):
    q, k, v = (torch.randn(1, 4, 6000, 2).double() for _ in range(3))
    position = torch.arange(6000)
    # Of the literal sums these will do; 59 has no divisor with a chunk of 128 in common.
    queries = position[::59]
    out = retain(q.float(), k.float(), v.float(), causal)
    # The slowest of four heads has a half-life of 178 tokens.
    for h in range(4):
        distance = queries[:, None] - position
        decay = (1 - 2.0 ** (-5 - h)) ** distance.abs().double()
        decay = decay.masked_fill(distance < 0, 0.0) if causal else decay
        exact = (decay * (q[0, h, queries] @ k[0, h].T)) @ v[0, h]
        assert (out[0, h, queries] - exact).norm() / exact.norm() < 1e-6


def test_a_head_of_odd_width_is_rejected():
    with pytest.raises(UserError, match="dim=6 over heads=2 leaves 3; choose a dim"):
        Retention(Size(dim=6, heads=2, max_len=9, causal=False, dropout=0.0))
