"""Properties beyond formulas: initialisation, dropout, states, fp32 over many tokens."""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import zoo
from tests.zoo import oracle
from tests.zoo.formulas import erased_sums, level_sums, loop, regressions
from tests.zoo.oracle import (
    DIM,
    HEADS,
    WIDTH,
    agree,
    decode,
    draw,
    gradients,
    qkv,
    softmax_attention,
)
from zoo.kernels.delta import decayed_chunks
from zoo.variants.log_linear import weighted_sum
from zoo.variants.mesa import regress
from zoo.variants.retention import log_gamma
from zoo.variants.rwkv7 import recur


@pytest.mark.parametrize(("sharing", "count"), [("none", 4), ("headwise", 2), ("kv", 1)])
def test_sharing_reduces_the_number_of_matrices(sharing, count):
    layer = oracle.create("linformer", max_len=100, rank=7, sharing=sharing)
    assert layer.projections.numel() == count * 7 * 100


@pytest.mark.parametrize(
    ("rank", "max_len"), [(8, 64), (7, 100), (64, 64), (256, 64), (1, 5), (256, 1024)]
)
def test_a_fresh_layer_attends_to_the_means_of_segments(rank, max_len):
    (q, k, v) = inputs = qkv(max_len)
    k_means, v_means = (
        F.adaptive_avg_pool1d(part.flatten(0, 1).mT, rank).mT.unflatten(0, part.shape[:2])
        for part in (k, v)
    )
    expected = softmax_attention(q, k_means, v_means)
    for sharing in ("none", "headwise", "kv"):
        layer = oracle.create("linformer", max_len=max_len, rank=rank, sharing=sharing)
        # The means were computed in fp32.
        agree(layer.attend(*inputs, None), expected, outputs=(1e-5, 1e-6))


def test_a_step_of_adamw_changes_a_projected_key_by_less_than_itself():
    """With E as the parameter it would change by n times the learning rate."""
    layer = oracle.create("linformer", max_len=1024, rank=256)
    x = torch.randn(2, 1024, DIM).double() + 1
    before = layer.scale * layer.projections.detach()
    optimizer = torch.optim.AdamW(layer.parameters(), lr=2e-3, weight_decay=0.0)
    layer(x, x, None).tokens.square().mean().backward()
    optimizer.step()
    change = (layer.scale * layer.projections.detach() - before).abs().sum(-1)
    assert 0 < change.max() < 0.1
    assert before.sum(-1).allclose(torch.ones(()).double())


def test_dropout_of_global_tokens_and_of_the_window():
    layer, x = oracle.create("longformer", dropout=0.5, window=4), draw(30)
    dropped, expected = layer(x).tokens, layer.eval()(x).tokens
    assert not torch.allclose(dropped[:, 0], expected[:, 0])
    assert not torch.allclose(dropped[:, 1:], expected[:, 1:])


def test_dropping_weights_of_a_window_leaves_their_mean():
    inputs = [part.detach() for part in qkv(50)]
    exact = oracle.create("local", window=8).attend(*inputs, None)
    layer = oracle.create("local", dropout=0.5, window=8)
    outs = torch.stack([layer.attend(*inputs, None) for _ in range(400)])
    # 400 draws have a standard error of 5 % of a deviation.
    assert ((outs.mean(0) - exact).abs() < 0.3 * outs.std(0) + 1e-12).all()


def test_steps_of_sinks_equal_forward_with_more_first_tokens_than_the_window_has():
    layer = oracle.create("sinks", causal=True, window=3, tokens=9, learned=True).eval()
    torch.nn.init.normal_(layer.sink)
    x = draw(40).detach()
    torch.testing.assert_close(decode(layer, x)[0], layer(x).tokens)


def test_training_draws_new_rotations_and_keeps_those_of_evaluation():
    (q, _, v), layer = qkv(100), oracle.create("reformer", bucket=8).eval()
    before, expected = layer.rotations.clone(), layer.attend(q, q, v, None)
    assert not torch.equal(layer.train().attend(q, q, v, None), expected)
    assert torch.equal(layer.rotations, before)


def test_there_are_as_many_hashes_as_chunks_rounded_up_to_even():
    pairs = {64: 1, 65: 1, 128: 1, 129: 2, 1000: 8, 4096: 32}
    layers = {n: zoo.create("reformer", dim=DIM, heads=HEADS, max_len=n) for n in pairs}
    assert {n: layer.rotations.shape[-1] for n, layer in layers.items()} == pairs


def test_dropping_weights_of_reformer_keeps_their_mean():
    layer = oracle.create("reformer", dropout=0.25, bucket=200)
    ones = torch.ones(1, HEADS, 200, WIDTH)
    out = layer.attend(ones, ones, ones, None)
    # 199 weights of 1/199, each 0 or 4/3 as large: deviation sqrt(1/3 / 199) = 0.04 a token.
    assert out.mean() == pytest.approx(1.0, abs=0.01)
    assert out[..., 0].std() == pytest.approx((1 / 3 / 199) ** 0.5, rel=0.2)
    torch.testing.assert_close(layer.eval().attend(ones, ones, ones, None), ones)


create = partial(oracle.create, causal=True)


def in_both_precisions(*inputs: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """The same leaves in fp32, and in double precision."""
    single = [x.float().requires_grad_() for x in inputs]
    return single, [x.detach().double().requires_grad_() for x in single]


def near(out: Tensor, single: list[Tensor], exact: Tensor, double: list[Tensor], bound: float):
    """Assert that outputs are equal up to `bound`, and gradients up to ten times that."""
    assert (out - exact).norm() < bound * exact.norm()
    for slope, other in zip(gradients(out, *single), gradients(exact, *double), strict=True):
        assert (slope - other).norm() <= 10 * bound * other.norm()


@pytest.mark.parametrize("causal", [False, True])
def test_long_sequences_of_retention_are_exact_in_fp32(causal):
    q, k, v = (torch.randn(1, 4, 6000, 2).double() for _ in range(3))
    position = torch.arange(6000)
    # Of the literal sums these will do; 59 has no divisor with a chunk of 128 in common.
    queries = position[::59]
    single = [part.float() for part in (q, k, v)]
    gamma = log_gamma(4).to(single[0])[None, :, None, None].expand(-1, -1, 6000, -1)
    out = decayed_chunks(*single, gamma, chunk=16, causal=causal)
    # The slowest of four heads has a half-life of 178 tokens.
    for h in range(4):
        distance = queries[:, None] - position
        decay = (1 - 2.0 ** (-5 - h)) ** distance.abs().double()
        decay = decay.masked_fill(distance < 0, 0.0) if causal else decay
        exact = (decay * (q[0, h, queries] @ k[0, h].T)) @ v[0, h]
        assert (out[0, h, queries] - exact).norm() / exact.norm() < 1e-6


@pytest.mark.parametrize("levels", [3, 15])
def test_steps_equal_forward_beyond_the_last_level(levels):
    layer, x = create("log-linear", levels=levels).eval(), torch.randn(2, 90, DIM).double()
    outputs, state = decode(layer, x)
    assert state[0].shape == (2, HEADS, levels, WIDTH, WIDTH)
    torch.testing.assert_close(outputs, layer(x).tokens)
    torch.testing.assert_close(layer.prefill(x)[1], state)
    # A level is occupied where the number of tokens has a binary digit of 1.
    occupied = state[0].abs().amax((0, 1, 3, 4)) > 0
    assert not occupied[0]
    if levels == 15:
        assert [int(bit) for bit in occupied[1:8]] == [90 >> level & 1 for level in range(7)]


@pytest.mark.parametrize("strength", [0.0, 1.0, 30.0, 1e3, 1e6])
def test_gates_of_log_linear_of_any_strength_are_exact_in_fp32(strength):
    q, k, v = torch.randn(3, 1, 1, 300, WIDTH)
    closed = (torch.arange(300) % 3 == 0)[:, None].float() * torch.rand(1, 1, 300, 1)
    log_alpha = -strength * closed - 0.01 * torch.rand(1, 1, 300, 1)
    single, double = in_both_precisions(q, k, v, log_alpha, torch.rand(1, 1, 300, 15))
    head = [x[0, 0] for x in double]
    exact = level_sums(*head[:3], head[3][:, 0].exp(), head[4])
    near(weighted_sum(*single, 64, 300)[0, 0], single, exact, double, 1e-6)


def test_lambda_of_mesa_starts_at_one():
    penalty = create("mesa").float()._penalty(torch.zeros(1, HEADS, 1, WIDTH))
    torch.testing.assert_close(penalty, torch.ones(HEADS, WIDTH))


def terms_of_mesa(n: int) -> list[Tensor]:
    q, k, v = torch.randn(3, 1, 1, n, WIDTH).double()
    q, k = (torch.nn.functional.normalize(part, dim=-1) for part in (q, k))
    return [q, k, v, torch.rand(1, 1, n, 1).double().log() / 16, torch.rand(1, 1, n, 1).double()]


def test_fp32_is_near_the_exact_solution_of_many_tokens():
    single, double = in_both_precisions(*terms_of_mesa(500))
    penalty, head = torch.full((1, WIDTH), 0.25), [x[0, 0] for x in double]
    exact = regressions(*head[:3], head[3][:, 0].exp(), head[4][:, 0], penalty[0].double())
    near(regress(*single, penalty, 16)[0][0, 0], single, exact, double, 1e-6)


def terms_of_rwkv7(n: int, decay: float) -> list[Tensor]:
    """Inputs of `recur` for one sample and head; log w is between 0 and `decay`."""
    r, k, v, erased = torch.randn(4, 1, 1, n, WIDTH, dtype=torch.float64)
    log_w, a = decay * torch.rand(1, 1, n, WIDTH), torch.rand(1, 1, n, WIDTH).double()
    return [r, k, v, log_w.double(), a, torch.nn.functional.normalize(erased, dim=-1)]


@pytest.mark.parametrize("decay", [0.0, -0.6])
def test_fp32_is_exact_at_the_slowest_and_the_fastest_decay(decay):
    single, double = in_both_precisions(*terms_of_rwkv7(300, decay))
    r, k, v, log_w, a, erased = (x[0, 0] for x in double)
    exact = erased_sums(r, k, v, log_w.exp(), a, erased)
    near(recur(*single, 64, 300)[0][0, 0], single, exact, double, 5e-6)


def test_two_steps_are_two_tokens_of_which_the_second_reads():
    layer, x = create("delta", steps=2, negative=True), draw(30)
    inputs = layer.inputs(x, layer.query_key_value(x), None)
    y = loop(*inputs)[:, :, 1::2]
    torch.testing.assert_close(layer(x).tokens, layer.merge(x, y))
    assert inputs.k.shape[2] == 60 and not torch.equal(inputs.k[:, :, ::2], inputs.k[:, :, 1::2])


@pytest.mark.parametrize(
    ("name", "least", "median"), [("gated-delta", 0.3, 0.94), ("kda", 0.3, 0.93)]
)
def test_a_fresh_layer_remembers(name, least, median):
    layer = zoo.create(name, dim=512, heads=256, max_len=9, causal=True)
    alpha = layer.decay(torch.zeros(1, 1, 512))[0].detach().exp()
    assert alpha.median().item() == pytest.approx(median, abs=0.02)
    assert least < alpha.quantile(0.05) < 0.6 and 0.98 < alpha.quantile(0.95) < 1


@pytest.mark.slow
def test_steps_of_fox_keep_the_digits_that_a_sum_over_many_tokens_loses():
    layer = create("fox", max_len=1024).float().eval()
    with torch.no_grad():
        x, state = torch.randn(1, 1024, DIM), layer.start(1)
        exact = layer.double()(x.double()).tokens[:, -1]
        layer.float()
        for token in x.unbind(1):
            output, state = layer.step(token, state)
        assert (output - exact).abs().max() < 2e-6
        assert (layer(x).tokens[:, -1] - exact).abs().max() < 1e-4
