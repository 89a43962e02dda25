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


@pytest.mark.parametrize(
    ("rank", "max_len"), [(8, 64), (7, 100), (64, 64), (256, 64), (1, 5), (256, 1024)]
)
def test_a_fresh_linformer_attends_to_the_means_of_segments(rank, max_len):
    (q, k, v) = inputs = qkv(max_len)
    k_means, v_means = (
        F.adaptive_avg_pool1d(part.flatten(0, 1).mT, rank).mT.unflatten(0, part.shape[:2])
        for part in (k, v)
    )
    expected = softmax_attention(q, k_means, v_means)
    for sharing, count in (("none", 4), ("headwise", 2), ("kv", 1)):
        layer = oracle.create("linformer", max_len=max_len, rank=rank, sharing=sharing)
        assert layer.projections.numel() == count * rank * max_len
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


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("softmax", {"backend": "sdpa"}),
        ("softmax", {"backend": "naive"}),
        ("local", {"window": 100}),
        ("reformer", {"bucket": 200}),
    ],
)
def test_dropping_weights_keeps_their_mean(name, options):
    layer = oracle.create(name, dropout=0.25, **options)
    ones = torch.ones(1, HEADS, 200, WIDTH).double()
    out = layer.attend(ones, ones, ones, None)
    # About 200 weights of 1/200, each 0 or 4/3 as large: deviation sqrt(1/3 / 200) a token.
    assert out.mean() == pytest.approx(1.0, abs=0.02)
    assert out[..., 0].std() == pytest.approx((1 / 3 / 200) ** 0.5, rel=0.3)
    torch.testing.assert_close(layer.eval().attend(ones, ones, ones, None), ones)


def test_dropout_of_global_tokens_and_of_the_window():
    layer, x = oracle.create("longformer", dropout=0.5, window=4), draw(30)
    dropped, expected = layer(x).tokens, layer.eval()(x).tokens
    assert not torch.allclose(dropped[:, 0], expected[:, 0])
    assert not torch.allclose(dropped[:, 1:], expected[:, 1:])


def test_reformer_draws_rotations_in_training_as_many_as_chunks_rounded_up_to_even():
    (q, _, v), layer = qkv(100), oracle.create("reformer", bucket=8).eval()
    before, expected = layer.rotations.clone(), layer.attend(q, q, v, None)
    assert not torch.equal(layer.train().attend(q, q, v, None), expected)
    assert torch.equal(layer.rotations, before)
    pairs = {64: 1, 65: 1, 128: 1, 129: 2, 1000: 8, 4096: 32}
    layers = {n: zoo.create("reformer", dim=DIM, heads=HEADS, max_len=n) for n in pairs}
    assert {n: layer.rotations.shape[-1] for n, layer in layers.items()} == pairs


def test_steps_of_sinks_equal_forward_with_more_first_tokens_than_the_window_has():
    layer = oracle.create("sinks", causal=True, window=3, tokens=9, learned=True).eval()
    torch.nn.init.normal_(layer.sink)
    x = draw(40).detach()
    torch.testing.assert_close(decode(layer, x)[0], layer(x).tokens)


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


def uniform(*shape: int) -> Tensor:
    return torch.rand(1, 1, *shape).double()


def unit(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)


@pytest.mark.parametrize("strength", [0.0, 30.0, 1e6])
def test_gates_of_log_linear_of_any_strength_are_exact_in_fp32(strength):
    closed = (torch.arange(300) % 3 == 0)[:, None] * uniform(300, 1)
    gates = -strength * closed - 0.01 * uniform(300, 1), uniform(300, 15)
    single, double = in_both_precisions(*torch.randn(3, 1, 1, 300, WIDTH), *gates)
    head = [x[0, 0] for x in double]
    exact = level_sums(*head[:3], head[3][:, 0].exp(), head[4])
    near(weighted_sum(*single, 64, 300)[0, 0], single, exact, double, 1e-6)


def test_the_solution_of_mesa_of_many_tokens_is_near_the_exact_one_in_fp32():
    q, k, v = torch.randn(3, 1, 1, 500, WIDTH).double()
    gates = uniform(500, 1).log() / 16, uniform(500, 1)
    single, double = in_both_precisions(unit(q), unit(k), v, *gates)
    penalty, head = torch.full((1, WIDTH), 0.25), [x[0, 0] for x in double]
    exact = regressions(*head[:3], head[3][:, 0].exp(), head[4][:, 0], penalty[0].double())
    near(regress(*single, penalty, 16)[0][0, 0], single, exact, double, 1e-6)
    penalty = create("mesa").float()._penalty(torch.zeros(1, HEADS, 1, WIDTH))
    torch.testing.assert_close(penalty, torch.ones(HEADS, WIDTH))


@pytest.mark.parametrize("decay", [0.0, -0.6])
def test_rwkv7_is_exact_in_fp32_at_the_slowest_and_the_fastest_decay(decay):
    r, k, v, erased = torch.randn(4, 1, 1, 300, WIDTH).double()
    gates = decay * uniform(300, WIDTH), uniform(300, WIDTH)
    single, double = in_both_precisions(r, k, v, *gates, unit(erased))
    r, k, v, log_w, a, erased = (x[0, 0] for x in double)
    exact = erased_sums(r, k, v, log_w.exp(), a, erased)
    near(recur(*single, 64, 300)[0][0, 0], single, exact, double, 5e-6)


def test_two_steps_are_two_tokens_of_which_the_second_reads():
    layer, x = create("delta", steps=2, negative=True), draw(30)
    inputs = layer.inputs(x, layer.query_key_value(x), None)
    y = loop(*inputs)[:, :, 1::2]
    torch.testing.assert_close(layer(x).tokens, layer.merge(x, y))
    assert inputs.k.shape[2] == 60 and not torch.equal(inputs.k[:, :, ::2], inputs.k[:, :, 1::2])


@pytest.mark.parametrize(("name", "median"), [("gated-delta", 0.94), ("kda", 0.93)])
def test_a_fresh_layer_remembers(name, median):
    layer = zoo.create(name, dim=512, heads=256, max_len=9, causal=True)
    alpha = layer.decay(torch.zeros(1, 1, 512))[0].detach().exp()
    assert alpha.median().item() == pytest.approx(median, abs=0.02)
    assert 0.3 < alpha.quantile(0.05) < 0.6 and 0.98 < alpha.quantile(0.95) < 1


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
