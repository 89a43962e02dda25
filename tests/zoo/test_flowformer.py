"""Flowformer against its formula with all flows in memory, and the conservation it is named for."""

import pytest
import torch

from tests.zoo.oracle import (
    HEADS,
    PADDED,
    WIDTH,
    agree,
    gradients,
    nothing_gives_zero,
    qkv,
    ragged,
    rounds_once,
)
from zoo.contract import Size
from zoo.variants.flowformer import Flowformer, conserved


def flowformer() -> Flowformer:
    size = Size(dim=HEADS * WIDTH, heads=HEADS, max_len=1000, causal=False, dropout=0.0)
    return Flowformer(size).double()


def by_the_formula(q, k, v, mask):
    """One sample and head at a time, with padded tokens removed; zero where they stood."""
    out = torch.zeros_like(q)
    for b in range(q.shape[0]):
        real = torch.arange(q.shape[2]) if mask is None else mask[b].nonzero()[:, 0]
        for h in range(q.shape[1] if len(real) else 0):
            out[b, h, real] = without_padding(*(part[b, h, real] for part in (q, k, v)))
    return out


def without_padding(q, k, v):
    """The n x n flows, row i into sink i and column j out of source j."""
    flows = q.sigmoid() @ k.sigmoid().T
    into, out_of = flows.sum(1, keepdim=True), flows.sum(0, keepdim=True)
    conserved_into = (flows / out_of).sum(1, keepdim=True)
    conserved_out_of = (flows / into).sum(0, keepdim=True)
    competition = conserved_out_of.exp() / conserved_out_of.exp().sum() * len(v)
    return conserved_into.sigmoid() * (flows / into * competition @ v)


@PADDED
@pytest.mark.parametrize("n", [1, 2, 63, 100, 1000])
def test_output_and_gradients_are_those_of_the_formula(n, padded):
    inputs, mask = qkv(n), ragged(n) if padded else None
    agree(flowformer().attend(*inputs, mask), by_the_formula(*inputs, mask), *inputs)


def test_gradients_agree_with_finite_differences():
    layer, mask = flowformer(), ragged(7)
    assert torch.autograd.gradcheck(lambda *inputs: layer.attend(*inputs, mask), qkv(7))


@pytest.mark.parametrize("shift", [-1000.0, 0.0, 1000.0])
def test_every_token_passes_on_a_flow_of_one(shift):
    x, total = qkv(30, shift=shift)[0], torch.rand(2, HEADS, 1, WIDTH).double()
    flow = (conserved(x, total) * total).sum(-1)
    torch.testing.assert_close(flow, torch.ones(2, HEADS, 30).double())


def test_equal_tokens_share_equally():
    same = torch.full((1, HEADS, 9, WIDTH), 0.3).double()
    values = torch.arange(9).double()[:, None].expand(1, HEADS, 9, WIDTH)
    out = flowformer().attend(same, same, values, None)
    expected = torch.full_like(out, 4.0) * torch.ones(()).double().sigmoid()
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("shift", [-20.0, 0.0, 20.0])
def test_fp32_stays_exact_where_features_are_small_or_large(shift):
    inputs = qkv(100, scale=3.0, shift=shift)
    out = flowformer().attend(*(part.float() for part in inputs), None)
    expected = by_the_formula(*inputs, None)
    assert (out - expected).norm() / expected.norm() < 1e-4


@pytest.mark.parametrize("scale", [0.0, 10.0, 1e3, 1e6])
@pytest.mark.parametrize("shift", [-1.0, 0.0, 1.0])
def test_extreme_inputs_stay_finite_with_finite_gradients(scale, shift):
    inputs = [part.float() for part in qkv(50, scale=scale, shift=shift * scale)]
    out = flowformer().attend(*inputs, None)
    assert out.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients(out, *inputs))


@pytest.mark.parametrize("real", [1, 5, 30])
def test_padding_at_the_end_changes_nothing(real):
    layer, inputs, mask = flowformer(), qkv(40), torch.arange(40) < real
    padded = layer.attend(*inputs, mask.expand(2, -1))[:, :, :real]
    short = layer.attend(*(part[:, :, :real] for part in inputs), None)
    torch.testing.assert_close(padded, short, rtol=1e-10, atol=1e-12)


def test_a_sample_of_padding_alone_gives_zero_and_moves_nothing():
    nothing_gives_zero(flowformer())


def test_flows_are_fp32_under_autocast():
    rounds_once(flowformer())
