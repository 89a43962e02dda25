"""Flowformer against its formula with all flows in memory, and the conservation of flows."""

import pytest
import torch

from tests.zoo.oracle import HEADS, LENGTHS, PADDED, WIDTH, agree, qkv, ragged
from zoo.contract import Size
from zoo.variants.flowformer import Flowformer, unit_flow


def flowformer() -> Flowformer:
    size = Size(dim=HEADS * WIDTH, heads=HEADS, max_len=1000, causal=False, dropout=0.0)
    return Flowformer(size).double()


def by_the_formula(q, k, v, mask):
    """One sample and head at a time, with padded tokens removed; zero at padded tokens."""
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
@LENGTHS
def test_output_and_gradients_are_those_of_the_formula(n, padded):
    inputs, mask = qkv(n), ragged(n) if padded else None
    agree(flowformer().attend(*inputs, mask), by_the_formula(*inputs, mask), *inputs)


@pytest.mark.parametrize("shift", [-1000.0, 0.0, 1000.0])
def test_every_token_has_a_flow_of_one(shift):
    x, total = qkv(30, shift=shift)[0], torch.rand(2, HEADS, 1, WIDTH).double()
    flow = (unit_flow(x, total) * total).sum(-1)
    torch.testing.assert_close(flow, torch.ones(2, HEADS, 30).double())


def test_equal_tokens_have_equal_weights():
    same = torch.full((1, HEADS, 9, WIDTH), 0.3).double()
    values = torch.arange(9).double()[:, None].expand(1, HEADS, 9, WIDTH)
    out = flowformer().attend(same, same, values, None)
    expected = torch.full_like(out, 4.0) * torch.ones(()).double().sigmoid()
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("shift", [-20.0, 0.0, 20.0])
def test_fp32_is_exact_where_features_are_small_or_large(shift):
    inputs = qkv(100, scale=3.0, shift=shift)
    out = flowformer().attend(*(part.float() for part in inputs), None)
    expected = by_the_formula(*inputs, None)
    assert (out - expected).norm() / expected.norm() < 1e-4
