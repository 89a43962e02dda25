"""Sliding-window attention against its formula, exact softmax, and the published package."""

import pytest
import torch

from tests.zoo.oracle import FORMS, HEADS, PADDED, WIDTH, agree, qkv, ragged, valid
from zoo.contract import Size
from zoo.variants.local import Local


def local(causal: bool = False, dropout: float = 0.0, **options) -> Local:
    size = Size(dim=HEADS * WIDTH, heads=HEADS, max_len=1000, causal=causal, dropout=dropout)
    return Local(size, **options).double()


def by_the_formula(q, k, v, mask, window, causal):
    """All n x n weights, one sample at a time with padded tokens removed; zero at padded tokens."""
    out = torch.zeros_like(q)
    for b in range(q.shape[0]):
        real = torch.arange(q.shape[2]) if mask is None else mask[b].nonzero()[:, 0]
        rank = torch.arange(len(real))
        distance = rank[:, None] - rank
        allowed = (distance.abs() <= window) & (distance >= 0 if causal else True)
        scores = q[b][:, real] @ k[b][:, real].mT / q.shape[-1] ** 0.5
        out[b, :, real] = scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ v[b][:, real]
    return out


@FORMS
@PADDED
@pytest.mark.parametrize("window", [1, 7, 64])
@pytest.mark.parametrize("n", [1, 7, 8, 65, 130])
def test_output_and_gradients_are_those_of_the_formula(n, window, padded, causal):
    inputs, mask = qkv(n), ragged(n) if padded else None
    out = valid(local(causal, window=window).attend(*inputs, mask), mask)
    expected = by_the_formula(*inputs, mask, window, causal)
    agree(out, expected, *inputs, slopes=(1e-10, 1e-12))


@FORMS
@pytest.mark.parametrize("window", [99, 100, 5000])
def test_a_window_over_all_tokens_gives_exact_softmax(window, causal):
    inputs = qkv(100)
    expected = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=causal)
    out = local(causal, window=window).attend(*inputs, None)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-12)


@FORMS
def test_a_token_changes_outputs_within_the_window_only(causal):
    layer, inputs = local(causal, window=8), qkv(64)
    changed = [part.detach().clone() for part in inputs]
    for part in changed:
        part[:, :, 30] *= -1e3
    changed_at = (layer.attend(*changed, None) != layer.attend(*inputs, None)).any(-1).any(1).any(0)
    expected = torch.zeros(64, dtype=torch.bool)
    expected[30 if causal else 22 : 39] = True
    assert torch.equal(changed_at, expected)


def test_dropout_applies_to_weights_in_training_only():
    inputs = [part.detach() for part in qkv(50)]
    exact = local(window=8).attend(*inputs, None)
    layer = local(dropout=0.5, window=8)
    outs = torch.stack([layer.attend(*inputs, None) for _ in range(400)])
    assert (outs[0] != exact).any()
    # Dropping weights leaves the mean: 400 draws have a standard error of 5 % of a deviation.
    assert ((outs.mean(0) - exact).abs() < 0.3 * outs.std(0) + 1e-12).all()
    assert torch.equal(layer.eval().attend(*inputs, None), exact)


@FORMS
@PADDED
def test_the_published_package_agrees(causal, padded):
    package = pytest.importorskip("local_attention")
    theirs = package.LocalAttention(
        16, causal=causal, exact_windowsize=True, use_rotary_pos_emb=False
    )
    inputs, mask = qkv(96), torch.ones(2, 96, dtype=torch.bool)
    if padded:
        # At the end: it numbers padded tokens too.
        mask[0, 60:] = False
    out = local(causal, window=16).attend(*inputs, mask if padded else None)
    expected = theirs(*inputs, mask=mask)
    torch.testing.assert_close(valid(out, mask), valid(expected, mask), rtol=1e-10, atol=1e-12)
