"""Linformer against a loop over its formula and cases in which it is exact softmax."""

import jaxtyping
import pytest
import torch

from zoo.contract import Size, Unsupported
from zoo.registry import Refused
from zoo.variants.linformer import Linformer

HEADS, WIDTH, MAX_LEN = 2, 4, 1000
PADDED = pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
SHARING = pytest.mark.parametrize("sharing", ["none", "headwise", "kv"])


def linformer(max_len: int = MAX_LEN, dropout: float = 0.0, **options) -> Linformer:
    size = Size(dim=HEADS * WIDTH, heads=HEADS, max_len=max_len, causal=False, dropout=dropout)
    return Linformer(size, **options).double()


def qkv(n: int, m: int) -> list[torch.Tensor]:
    lengths = (n, m, m)
    return [torch.randn(2, HEADS, length, WIDTH).double().requires_grad_() for length in lengths]


def ragged(m: int) -> torch.Tensor:
    """Padding at the end of one sample; scattered through the other, from its first token on."""
    keep = torch.ones(2, m, dtype=torch.bool)
    keep[0, m - m // 3 :] = False
    keep[1, ::5] = False
    return keep


def by_the_formula(q, k, v, keep, projections):
    """One sample and head at a time, with padded tokens removed from keys and values."""
    out = torch.zeros_like(q)
    for b in range(q.shape[0]):
        real = torch.arange(k.shape[2]) if keep is None else keep[b].nonzero()[:, 0]
        for h in range(q.shape[1]):
            own = projections[:, h if projections.shape[1] > 1 else 0, :, : len(real)]
            e, f = (own[0], own[0]) if len(own) == 1 else (own[0], own[1])
            scores = q[b, h] @ (e @ k[b, h, real]).T / q.shape[-1] ** 0.5
            out[b, h] = scores.softmax(-1) @ (f @ v[b, h, real])
    return out


def gradients(out: torch.Tensor, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    ramp = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return torch.autograd.grad((out * ramp).sum(), inputs)


@SHARING
@PADDED
@pytest.mark.parametrize("n", [1, 2, 63, 100, 1000])
def test_output_and_gradients_are_those_of_the_formula(n, padded, sharing):
    layer, inputs = linformer(rank=16, sharing=sharing), qkv(n, n)
    inputs.append(layer.projections)
    keep = ragged(n) if padded else None
    out, expected = layer.attend(*inputs[:3], keep), by_the_formula(*inputs[:3], keep, inputs[3])
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-12)
    both = zip(gradients(out, *inputs), gradients(expected, *inputs), strict=True)
    for one, other in both:
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("sharing", "count"), [("none", 4), ("headwise", 2), ("kv", 1)])
def test_sharing_saves_matrices(sharing, count):
    assert linformer(100, rank=7, sharing=sharing).projections.numel() == count * 7 * 100


def test_queries_and_keys_may_differ_in_number():
    layer, inputs = linformer(rank=16), qkv(5, 11)
    expected = by_the_formula(*inputs, ragged(11), layer.projections)
    torch.testing.assert_close(layer.attend(*inputs, ragged(11)), expected, rtol=1e-10, atol=0)


def test_one_column_for_each_token_is_exact_softmax():
    layer, (q, k, v) = linformer(63, rank=63), qkv(63, 63)
    with torch.no_grad():
        layer.projections.copy_(torch.eye(63)[torch.randperm(63)])
    exact = (q @ k.mT / WIDTH**0.5).softmax(-1) @ v
    torch.testing.assert_close(layer.attend(q, k, v, None), exact)


def test_projected_keys_start_about_as_large_as_keys():
    layer, (_, k, _) = linformer(rank=256), qkv(MAX_LEN, MAX_LEN)
    scale = (layer.projections[0] @ k).square().mean().sqrt() / k.square().mean().sqrt()
    assert 0.7 < scale < 1.1


def test_padded_content_does_not_matter_and_a_padded_sample_is_zero():
    layer, inputs, keep = linformer(rank=16), qkv(40, 40), ragged(40)
    keep[0] = False
    loud = [torch.where(keep[:, None, :, None], part, 1e4) for part in inputs[1:]]
    before, after = layer.attend(*inputs, keep), layer.attend(inputs[0], *loud, keep)
    torch.testing.assert_close(before, after, rtol=1e-12, atol=0)
    assert (before[0] == 0).all()
    assert (before[1] != 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients(before, *inputs))


def test_dropout_falls_on_weights_in_training_only():
    inputs = [part.detach() for part in qkv(30, 30)]
    layer = linformer(dropout=0.5, rank=16)
    drawn = layer.attend(*inputs, None)
    exact = by_the_formula(*inputs, None, layer.projections)
    assert not torch.allclose(drawn, exact)
    torch.testing.assert_close(layer.eval().attend(*inputs, None), exact)


def test_bf16_autocast_stays_near_fp32():
    layer, x, keep = linformer().float(), torch.randn(2, 200, HEADS * WIDTH), ragged(200)
    exact = layer(x, x, keep).tokens
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = layer(x, x, keep).tokens
    assert (near - exact)[keep].norm() / exact[keep].norm() < 0.03


@PADDED
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_several_layers_run_at_once_under_vmap(monkeypatch, padded):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    layers, x = [linformer(rank=8) for _ in range(3)], torch.randn(2, 20, HEADS * WIDTH).double()
    keep = ragged(20) if padded else None
    stacked = torch.func.stack_module_state(layers)
    run = torch.func.vmap(
        lambda state: torch.func.functional_call(layers[0], state, (x, x, keep)).tokens
    )
    expected = torch.stack([layer(x, x, keep).tokens for layer in layers])
    torch.testing.assert_close(run(stacked), expected)


def test_more_tokens_than_there_are_columns_are_refused():
    with pytest.raises(Unsupported, match="linformer got 11 tokens, and has columns for max_len=9"):
        linformer(9, rank=4).attend(*qkv(11, 11), None)


def test_a_rank_above_the_length_is_allowed():
    assert linformer(9, rank=40).attend(*qkv(9, 9), None).isfinite().all()


def test_a_rank_below_one_is_refused():
    with pytest.raises(Refused, match=r"linformer\.rank=0 must be at least 1"):
        linformer(rank=0)
