"""RWKV-7 against its formula, token by token, and the delta rule."""

from functools import partial
from math import exp

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
    gradients,
    ragged,
    valid,
)
from zoo.variants.rwkv7 import recur


def rwkv7(**options) -> zoo.Attention:
    sizes = {"dim": DIM, "heads": HEADS, "max_len": 1000, "causal": True}
    layer = zoo.create("rwkv7", **sizes, **options).double()
    for parameter in (layer.mix, layer.erased, layer.written, layer.bonus, layer.norm.weight):
        torch.nn.init.normal_(parameter)
    return layer


def recurrence(r, k, v, w, a, erased):
    """The outputs of one head: value x key states, as in the published code."""
    state, rows = r.new_zeros(v.shape[1], k.shape[1]), []
    for i in range(len(r)):
        removed = torch.outer(state @ erased[i], a[i] * erased[i])
        state = state * w[i] - removed + torch.outer(v[i], k[i])
        rows.append(state @ r[i])
    return torch.stack(rows)


def by_the_formula(layer, x):
    """Without padding, head by head."""
    before = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
    z_r, z_k, z_v, z_w, z_a, z_g = (x + mu * (before - x) for mu in layer.mix)
    r, k, v = layer.query(z_r), layer.key(z_k), layer.value(z_v)
    w = (-exp(-0.5) * layer.decay(z_w).sigmoid()).exp()
    a, heads = layer.rate(z_a).sigmoid(), []
    written = k * (1 + (a - 1) * layer.written)
    for part in torch.arange(DIM).chunk(HEADS):
        erased = (k * layer.erased)[:, part]
        erased = erased / erased.norm(dim=1, keepdim=True)
        terms = r[:, part], written[:, part], v[:, part], w[:, part], a[:, part], erased
        y = recurrence(*terms)
        y = y - y.mean(1, keepdim=True)
        y = y / (y.square().mean(1, keepdim=True) + layer.norm.eps).sqrt()
        y = y * layer.norm.weight[part] + layer.norm.bias[part]
        bonus = (terms[0] * layer.bonus[part] * terms[1]).sum(1, keepdim=True)
        heads.append(y + bonus * terms[2])
    return layer.out(layer.gate(z_g) * torch.cat(heads, 1))


@PADDED
@pytest.mark.parametrize(
    ("n", "chunk"), [(1, 32), (63, 8), (100, 64), pytest.param(1000, 32, marks=pytest.mark.slow)]
)
def test_output_and_gradients_are_those_of_the_formula(n, chunk, padded):
    layer, x, mask = rwkv7(chunk=chunk), draw(n), ragged(n, 1) if padded else None
    out = valid(layer(x, mask=mask).tokens, mask)
    expected = by_sample(partial(by_the_formula, layer), x, mask)
    inputs = [x, *layer.parameters()]
    agree(out, expected, *inputs, outputs=(1e-9, 1e-11), slopes=(1e-8, 1e-9))


def terms(n, decay, dtype):
    """Inputs of `recur` for two samples and heads; log w is between 0 and `decay`."""
    r, k, v, erased = torch.randn(4, 2, HEADS, n, WIDTH, dtype=torch.float64)
    log_w, a = decay * torch.rand(2, HEADS, n, WIDTH), torch.rand(2, HEADS, n, WIDTH)
    erased = torch.nn.functional.normalize(erased, dim=-1)
    return [part.to(dtype).requires_grad_() for part in (r, k, v, log_w, a, erased)]


def by_head(r, k, v, log_w, a, erased):
    parts = r, k, v, log_w.exp(), a, erased
    heads = [recurrence(*(part[b, h] for part in parts)) for b in range(2) for h in range(HEADS)]
    return torch.stack(heads).unflatten(0, (2, HEADS))


@pytest.mark.parametrize("decay", [0.0, -0.6])
def test_fp32_is_exact_at_the_slowest_and_the_fastest_decay(decay):
    wide = terms(300, decay, torch.float64)
    narrow = [part.detach().float().requires_grad_() for part in wide]
    out, exact = recur(*narrow, 64, 300), by_head(*wide)
    assert (out - exact).norm() / exact.norm() < 5e-6
    for one, other in zip(gradients(out, *narrow), gradients(exact, *wide), strict=True):
        assert (one - other).norm() <= 2e-5 * other.norm()


def test_without_decay_and_with_one_key_it_is_the_delta_rule():
    r, _, v, log_w, a, key = terms(40, 0.0, torch.float64)
    beta = a[..., :1].expand_as(a)
    out = recur(r, beta * key, v, log_w, beta, key, 16, 40)
    state, rows = torch.zeros(2, HEADS, WIDTH, WIDTH).double(), []
    for i in range(40):
        k, error = key[:, :, i], v[:, :, i] - torch.einsum("bhe,bhef->bhf", key[:, :, i], state)
        state = state + (beta[:, :, i] * k)[..., None] * error[:, :, None]
        rows.append(torch.einsum("bhe,bhef->bhf", r[:, :, i], state))
    torch.testing.assert_close(out, torch.stack(rows, 2))
