"""Windows, global tokens and hashes: which tokens an output depends on, and dropout of weights."""

import pytest
import torch
from torch.nn import functional as F

import zoo
from tests.zoo.formulas import shared_softmax
from tests.zoo.oracle import DIM, FORMS, HEADS, WIDTH, draw, qkv


def create(name: str, *, causal: bool = False, dropout: float = 0.0, **options):
    sizes = {"dim": DIM, "heads": HEADS, "max_len": 1000, "causal": causal}
    return zoo.create(name, **sizes, dropout=dropout, **options).double()


def changed_by(layer: zoo.Attention, token: int, n: int, mask=None) -> list[int]:
    """The tokens whose outputs change with one token."""
    x = draw(n).detach()
    other = x.clone()
    other[:, token] *= -10
    differs = layer(other, mask=mask).tokens != layer(x, mask=mask).tokens
    return differs.any(-1).any(0).nonzero()[:, 0].tolist()


@FORMS
def test_a_token_changes_outputs_within_the_window_only(causal):
    layer = create("local", causal=causal, window=8)
    assert changed_by(layer, 30, 64) == list(range(30 if causal else 22, 39))


def test_all_tokens_attend_to_a_global_token():
    layer = create("longformer", window=4, global_tokens=2)
    assert changed_by(layer, 1, 60) == list(range(60))
    assert changed_by(layer, 30, 60) == [0, 1, *range(26, 35)]


def test_the_first_real_tokens_are_the_global_ones():
    mask = torch.ones(2, 60, dtype=torch.bool)
    mask[:, :3] = False
    layer = create("longformer", window=4, global_tokens=1)
    assert {*range(3, 60)} <= {*changed_by(layer, 3, 60, mask)}


def test_dropout_of_global_tokens_and_of_the_window():
    layer, x = create("longformer", dropout=0.5, window=4), draw(30)
    dropped, expected = layer(x).tokens, layer.eval()(x).tokens
    assert not torch.allclose(dropped[:, 0], expected[:, 0])
    assert not torch.allclose(dropped[:, 1:], expected[:, 1:])


def test_dropping_weights_of_a_window_leaves_their_mean():
    inputs = [part.detach() for part in qkv(50)]
    exact = create("local", window=8).attend(*inputs, None)
    layer = create("local", dropout=0.5, window=8)
    outs = torch.stack([layer.attend(*inputs, None) for _ in range(400)])
    # 400 draws have a standard error of 5 % of a deviation.
    assert ((outs.mean(0) - exact).abs() < 0.3 * outs.std(0) + 1e-12).all()


@FORMS
def test_a_logit_of_zero_is_one_more_key_and_value_of_zero(causal):
    q, k, v = qkv(50)
    layer = create("sinks", causal=causal, window=50, learned=True)
    allowed = torch.ones(50, 50, dtype=torch.bool)
    allowed = F.pad(allowed.tril() if causal else allowed, (1, 0), value=True)
    k_0, v_0 = (F.pad(part, (0, 0, 1, 0)) for part in (k, v))
    expected = F.scaled_dot_product_attention(q, k_0, v_0, attn_mask=allowed)
    torch.testing.assert_close(layer.attend(q, k, v, None), expected)


def test_steps_of_sinks_equal_forward_with_more_first_tokens_than_the_window_has():
    layer = create("sinks", causal=True, window=3, tokens=9, learned=True).eval()
    x, outputs = draw(40).detach(), []
    torch.nn.init.normal_(layer.sink)
    state = layer.start(2)
    for token in x.unbind(1):
        output, state = layer.step(token, state)
        outputs.append(output)
    torch.testing.assert_close(torch.stack(outputs, 1), layer(x).tokens)


def test_more_hashes_are_closer_to_dense_attention_on_clustered_inputs():
    centres = 6 * F.normalize(torch.randn(2, HEADS, 8, WIDTH), dim=-1)
    qk = centres.repeat(1, 1, 32, 1).double()
    qk = qk + 0.1 * torch.randn_like(qk)
    v, every = torch.randn_like(qk), torch.ones(256, 256, dtype=torch.bool)
    exact = torch.stack(
        [
            shared_softmax(q, v, every)
            for q, v in zip(qk.flatten(0, 1), v.flatten(0, 1), strict=True)
        ]
    ).view_as(v)

    def error(hashes: int) -> float:
        layers = [create("reformer", bucket=16, hashes=hashes).eval() for _ in range(5)]
        misses = [(x.attend(qk, qk, v, None) - exact).norm() / exact.norm() for x in layers]
        return float(torch.stack(misses).mean())

    errors = [error(hashes) for hashes in (1, 2, 8)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.5 * errors[0]


def test_training_draws_new_rotations_and_keeps_those_of_evaluation():
    (q, _, v), layer = qkv(100), create("reformer", bucket=8).eval()
    before, expected = layer.rotations.clone(), layer.attend(q, q, v, None)
    assert not torch.equal(layer.train().attend(q, q, v, None), expected)
    assert torch.equal(layer.rotations, before)


def test_there_are_as_many_hashes_as_chunks_rounded_up_to_even():
    pairs = {64: 1, 65: 1, 128: 1, 129: 2, 1000: 8, 4096: 32}
    layers = {n: zoo.create("reformer", dim=DIM, heads=HEADS, max_len=n) for n in pairs}
    assert {n: layer.rotations.shape[-1] for n, layer in layers.items()} == pairs


def test_dropping_weights_of_reformer_keeps_their_mean():
    layer = create("reformer", dropout=0.25, bucket=200)
    ones = torch.ones(1, HEADS, 200, WIDTH)
    out = layer.attend(ones, ones, ones, None)
    # 199 weights of 1/199, each 0 or 4/3 as large: deviation sqrt(1/3 / 199) = 0.04 a token.
    assert out.mean() == pytest.approx(1.0, abs=0.01)
    assert out[..., 0].std() == pytest.approx((1 / 3 / 199) ** 0.5, rel=0.2)
    torch.testing.assert_close(layer.eval().attend(ones, ones, ones, None), ones)
