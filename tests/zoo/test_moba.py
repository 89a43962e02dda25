"""Mixture of block attention against its definition, token by token."""

import pytest
import torch

import zoo
from tests.zoo.oracle import DIM, HEADS, PADDED, agree, qkv, ragged, softmax_attention, valid


def moba(**options) -> zoo.Attention:
    sizes = {"dim": DIM, "heads": HEADS, "max_len": 1000, "causal": True}
    return zoo.create("moba", **sizes, **options).double()


def visible(q, k, i, block, topk):
    """The positions of the keys that query i of one head attends to."""
    own = i // block
    means = [k[b * block : (b + 1) * block].mean(0) for b in range(own)]
    ranked = sorted(range(own), key=lambda b: -(q[i] @ means[b]).item())
    chosen = [*ranked[: topk - 1], own]
    return [j for b in sorted(chosen) for j in range(b * block, min((b + 1) * block, i + 1))]


def by_the_formula(q, k, v, mask, block, topk):
    """One token, head and sample at a time, with padded tokens removed; zero at padded tokens."""
    out = torch.zeros_like(q)
    for b in range(q.shape[0]):
        real = torch.arange(q.shape[2]) if mask is None else mask[b].nonzero()[:, 0]
        for h in range(q.shape[1]):
            queries, keys, values = (part[b, h, real] for part in (q, k, v))
            rows = []
            for i in range(len(real)):
                seen = visible(queries, keys, i, block, topk)
                weights = (keys[seen] @ queries[i] / q.shape[-1] ** 0.5).softmax(0)
                rows.append(weights @ values[seen])
            out[b, h, real] = torch.stack(rows)
    return out


@PADDED
@pytest.mark.parametrize(
    ("n", "options"),
    [
        (1, {}),
        (63, {"block": 8}),
        (100, {"block": 16, "topk": 2}),
        pytest.param(1000, {}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_output_and_gradients_are_those_of_the_definition(n, options, padded):
    layer, inputs, mask = moba(**options), qkv(n), ragged(n, 1) if padded else None
    out = valid(layer.attend(*inputs, mask), mask)
    agree(out, by_the_formula(*inputs, mask, layer.block, layer.topk), *inputs)


def test_steps_select_the_blocks_of_forward():
    layer = moba(block=8, topk=2).eval()
    x, outputs = torch.randn(2, 150, DIM).double(), []
    state = layer.start(2)
    for token in x.unbind(1):
        output, state = layer.step(token, state)
        outputs.append(output)
    torch.testing.assert_close(torch.stack(outputs, 1), layer(x).tokens)


def test_a_single_block_is_attention_within_blocks():
    inputs = qkv(40)
    out = moba(block=10, topk=1).attend(*inputs, None)
    blocks = [part.unflatten(2, (4, 10)).transpose(1, 2).flatten(0, 1) for part in inputs]
    last = softmax_attention(*blocks)[:, :, -1]
    torch.testing.assert_close(out[:, :, 9::10], last.unflatten(0, (2, 4)).transpose(1, 2))
