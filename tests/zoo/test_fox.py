"""The Forgetting Transformer against its formula."""

from functools import partial

import torch

import zoo
from tests.zoo.oracle import DIM, HEADS, LENGTHS, PADDED, agree, by_sample, draw, ragged, valid


def fox(max_len: int = 1000, **options) -> zoo.Attention:
    layer = zoo.create("fox", dim=DIM, heads=HEADS, max_len=max_len, causal=True, **options)
    torch.nn.init.normal_(layer.forget.bias, mean=2.0)
    return layer.double()


def by_the_formula(layer, x):
    """Without padding, head by head, from all n x n weights."""
    q, k, v = layer.query(x), *layer.context(x).chunk(2, -1)
    f, heads = layer.forget(x).sigmoid(), []
    for h, part in enumerate(torch.arange(DIM).chunk(HEADS)):
        # The product of the gates of j + 1 .. i.
        products = [f[j + 1 : i + 1, h].prod() for i in range(len(x)) for j in range(len(x))]
        kept = torch.stack(products).view(len(x), len(x))
        weights = (kept * (q[:, part] @ k[:, part].T / part.numel() ** 0.5).exp()).tril()
        heads.append(weights / weights.sum(1, keepdim=True) @ v[:, part])
    return layer.out(torch.cat(heads, 1))


def in_logarithms(layer, x):
    """The same for many tokens."""
    q, k, v = layer.query(x), *layer.context(x).chunk(2, -1)
    c, heads = layer.forget(x).sigmoid().log().cumsum(0), []
    for h, part in enumerate(torch.arange(DIM).chunk(HEADS)):
        logits = q[:, part] @ k[:, part].T / part.numel() ** 0.5 + c[:, None, h] - c[:, h]
        later = torch.ones_like(logits, dtype=torch.bool).triu(1)
        heads.append(logits.masked_fill(later, -torch.inf).softmax(1) @ v[:, part])
    return layer.out(torch.cat(heads, 1))


@PADDED
@LENGTHS
def test_output_and_gradients_are_those_of_the_formula(n, padded):
    layer, x, mask = fox(), draw(n), ragged(n) if padded else None
    out = valid(layer(x, mask=mask).tokens, mask)
    formula = by_the_formula if n < 100 else in_logarithms
    expected = by_sample(partial(formula, layer), x, mask)
    agree(out, expected, x, *layer.parameters(), slopes=(1e-8, 1e-10))


def test_equal_gates_are_a_bias_that_is_linear_in_the_distance():
    layer, x = fox(), draw(50)
    with torch.no_grad():
        layer.forget.weight.zero_()
    q, k, v = (
        part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        for part in (layer.query(x), *layer.context(x).chunk(2, -1))
    )
    position = torch.arange(50)
    slope = layer.forget.bias.sigmoid().log()[:, None, None]
    bias = (slope * (position[:, None] - position)).masked_fill(position > position[:, None], -1e9)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    expected = layer.out(expected.transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x).tokens, expected)


def test_steps_keep_the_digits_that_a_sum_over_many_tokens_loses():
    layer = fox(1024).float().eval()
    with torch.no_grad():
        layer.forget.bias.fill_(0.0)
        x, state = torch.randn(1, 1024, DIM), layer.start(1)
        exact = layer.double()(x.double()).tokens[:, -1]
        layer.float()
        for token in x.unbind(1):
            output, state = layer.step(token, state)
        assert (output - exact).abs().max() < 2e-6
        assert (layer(x).tokens[:, -1] - exact).abs().max() < 1e-4
