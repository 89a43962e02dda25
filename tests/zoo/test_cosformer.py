"""cosFormer against its formula with all weights in memory, token pair by token pair."""

import math

import torch

from tests.zoo.oracle import (
    FORMS,
    HEADS,
    LENGTHS,
    PADDED,
    WIDTH,
    agree,
    gradients,
    qkv,
    ragged,
    valid,
)
from zoo.contract import Size
from zoo.variants.cosformer import CosFormer

MAX_LEN = 1000


def cosformer(causal: bool = False, max_len: int = MAX_LEN, **options) -> CosFormer:
    size = Size(dim=HEADS * WIDTH, heads=HEADS, max_len=max_len, causal=causal, dropout=0.0)
    return CosFormer(size, **options).double()


def by_the_formula(q, k, v, mask, causal, max_len=MAX_LEN):
    """One sample at a time, with padded tokens removed; zero at padded tokens."""
    out = torch.zeros_like(q)
    for b in range(len(q)):
        real = torch.arange(q.shape[2]) if mask is None else mask[b].nonzero()[:, 0]
        i = torch.arange(len(real)).double()
        cosine = torch.cos(math.pi / 2 * (i[:, None] - i) / max_len)
        weights = q[b][:, real].relu() @ k[b][:, real].relu().mT * cosine
        weights = weights.tril() if causal else weights
        sums = weights.sum(-1, keepdim=True)
        out[b, :, real] = weights @ v[b][:, real] / torch.where(sums == 0, 1.0, sums)
    return out


@FORMS
@PADDED
@LENGTHS
def test_output_and_gradients_are_those_of_the_formula(n, padded, causal):
    inputs, mask = qkv(n), ragged(n) if padded else None
    out = valid(cosformer(causal).attend(*inputs, mask), mask)
    expected = by_the_formula(*inputs, mask, causal)
    agree(out, expected, *inputs, slopes=(1e-9, 1e-11))


def test_a_constant_input_has_the_cosine_of_the_distance_as_weight():
    one = torch.ones(1, HEADS, 50, WIDTH).double()
    marks = torch.zeros_like(one)
    marks[:, :, 0] = 1.0
    out = cosformer(max_len=50).attend(one, one, marks, None)[0, 0, :, 0]
    position = torch.arange(50).double()
    cosine = torch.cos(math.pi / 2 * (position[:, None] - position) / 50)
    torch.testing.assert_close(out, cosine[:, 0] / cosine.sum(-1))
    assert (out.diff() < 0).all()


@FORMS
def test_fp32_is_exact_to_the_end_of_a_long_sequence(causal):
    inputs = qkv(1000)
    expected = by_the_formula(*inputs, None, causal)
    out = cosformer(causal).attend(*(part.float() for part in inputs), None)
    assert (out - expected).norm() / expected.norm() < 1e-5


def test_a_step_beyond_max_len_has_the_last_position():
    layer = cosformer(causal=True, max_len=4).eval()
    x, state = torch.randn(1, WIDTH * HEADS).double(), layer.start(1)
    for _ in range(12):
        tokens, state = layer.step(x, state)
    # Equal tokens are equal values, whatever their weights are, as long as none is negative.
    expected, _ = layer.step(x, layer.start(1))
    torch.testing.assert_close(tokens, expected)


@FORMS
def test_a_query_without_a_positive_coordinate_gives_zero_and_finite_gradients(causal):
    layer, (q, k, v) = cosformer(causal), qkv(9)
    q = torch.cat([-q[:, :, :1].abs(), q[:, :, 1:]], 2)
    out = layer.attend(q, k, v, None)
    assert (out[:, :, 0] == 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients(out, q, k, v))
