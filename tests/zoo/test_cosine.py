"""Cosine attention against its formula with all weights in memory, and the range of its weights."""

import torch

from tests.zoo.oracle import FORMS, HEADS, LENGTHS, PADDED, WIDTH, agree, gradients, qkv, ragged
from zoo.contract import Size
from zoo.variants.cosine import Cosine


def cosine(causal: bool = False, **options) -> Cosine:
    """A layer whose heads have learned different powers."""
    size = Size(dim=HEADS * WIDTH, heads=HEADS, max_len=1000, causal=causal, dropout=0.0)
    layer = Cosine(size, **options).double()
    layer.power.data.copy_(torch.tensor([-0.7, 1.4]))
    return layer


def by_the_formula(q, k, v, mask, power, causal):
    """All n x m cosines in memory."""
    allowed = torch.ones(len(q), 1, q.shape[2], k.shape[2], dtype=q.dtype)
    if mask is not None:
        allowed = allowed * mask[:, None, None, :]
    if causal:
        allowed = allowed.tril()
    lengths = (q * q).sum(-1)[..., :, None].sqrt() * (k * k).sum(-1)[..., None, :].sqrt()
    weights = q @ k.mT / lengths * allowed
    count = allowed.sum(-1, keepdim=True).clamp_min(1)
    return weights @ v / torch.exp(count.log() / (1 + torch.exp(-power))[:, None, None])


@FORMS
@PADDED
@LENGTHS
def test_output_and_gradients_are_those_of_the_formula(n, padded, causal):
    layer, inputs, mask = cosine(causal), qkv(n, n), ragged(n) if padded else None
    given = (*inputs, layer.power)
    out = layer.attend(*inputs, mask)
    expected = by_the_formula(*inputs, mask, layer.power, causal)
    agree(out, expected, *given, slopes=(1e-9, 1e-11))


def test_queries_and_keys_may_differ_in_number():
    layer, inputs = cosine(), qkv(5, 11)
    expected = by_the_formula(*inputs, ragged(11), layer.power, False)
    torch.testing.assert_close(layer.attend(*inputs, ragged(11)), expected, rtol=1e-10, atol=1e-12)


@FORMS
def test_the_power_of_the_length_runs_from_a_sum_to_a_mean(causal):
    layer = cosine(causal)
    layer.power.data.copy_(torch.tensor([-40.0, 40.0]))
    same = torch.ones(1, HEADS, 50, WIDTH).double()
    total, average = layer.attend(same, same, same, None)[0, :, :, 0]
    count = torch.arange(1, 51).double() if causal else torch.full((50,), 50.0).double()
    torch.testing.assert_close(total, count)
    torch.testing.assert_close(average, torch.ones(50).double())


def test_a_new_layer_has_the_power_of_the_paper():
    size = Size(dim=HEADS * WIDTH, heads=HEADS, max_len=9, causal=False, dropout=0.0)
    assert Cosine(size).power.tolist() == [0.5, 0.5]


def test_the_length_of_queries_and_keys_does_not_matter():
    layer, (q, k, v) = cosine(), qkv(30, 30)
    stretch = torch.rand(2, HEADS, 30, 1).double() + 0.5
    scaled = layer.attend(q * stretch, k / stretch, v, None)
    torch.testing.assert_close(scaled, layer.attend(q, k, v, None))


@FORMS
def test_zero_vectors_have_zero_output_and_finite_gradients(causal):
    layer, inputs = cosine(causal), [part.float() for part in qkv(9, 9, 0.0)]
    out = layer.attend(*inputs, None)
    assert (out == 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients(out, *inputs))


@FORMS
def test_fp32_is_exact_on_a_long_sequence(causal):
    layer, inputs = cosine(causal), qkv(1000, 1000)
    expected = by_the_formula(*inputs, None, layer.power, causal)
    out = layer.attend(*(part.float() for part in inputs), None)
    assert (out - expected).norm() / expected.norm() < 1e-5
