"""cosFormer against its formula with all weights in memory, token pair by token pair."""

import math

import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

from zoo.contract import Size
from zoo.registry import Refused
from zoo.variants.cosformer import CosFormer

HEADS, WIDTH, MAX_LEN = 2, 4, 1000
FORMS = pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
PADDED = pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])


def cosformer(causal: bool = False, max_len: int = MAX_LEN, **options) -> CosFormer:
    size = Size(dim=HEADS * WIDTH, heads=HEADS, max_len=max_len, causal=causal, dropout=0.0)
    return CosFormer(size, **options).double()


def qkv(n: int, scale: float = 1.0) -> list[torch.Tensor]:
    parts = [scale * torch.randn(2, HEADS, n, WIDTH).double() for _ in range(3)]
    return [part.requires_grad_() for part in parts]


def ragged(n: int) -> torch.Tensor:
    """Padding at the end of one sample; scattered through the other, from its first token on."""
    keep = torch.ones(2, n, dtype=torch.bool)
    keep[0, n - n // 3 :] = False
    keep[1, ::5] = False
    return keep


def by_the_formula(q, k, v, keep, causal, max_len=MAX_LEN):
    """One sample at a time, with padded tokens removed; zero where they stood."""
    out = torch.zeros_like(q)
    for b in range(len(q)):
        real = torch.arange(q.shape[2]) if keep is None else keep[b].nonzero()[:, 0]
        i = torch.arange(len(real)).double()
        near = torch.cos(math.pi / 2 * (i[:, None] - i) / max_len)
        weights = q[b][:, real].relu() @ k[b][:, real].relu().mT * near
        weights = weights.tril() if causal else weights
        sums = weights.sum(-1, keepdim=True)
        out[b, :, real] = weights @ v[b][:, real] / torch.where(sums == 0, 1.0, sums)
    return out


def valid(out: torch.Tensor, keep: torch.Tensor | None) -> torch.Tensor:
    """`out` with zeros at padded positions, where it is unspecified."""
    return out if keep is None else out * keep[:, None, :, None]


def gradients(out: torch.Tensor, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    ramp = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return torch.autograd.grad((out * ramp).sum(), inputs)


@FORMS
@PADDED
@pytest.mark.parametrize("n", [1, 2, 63, 100, 128, 129, 1000])
def test_output_and_gradients_are_those_of_the_formula(n, padded, causal):
    inputs, keep = qkv(n), ragged(n) if padded else None
    out = valid(cosformer(causal).attend(*inputs, keep), keep)
    expected = by_the_formula(*inputs, keep, causal)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-12)
    both = zip(gradients(out, *inputs), gradients(expected, *inputs), strict=True)
    for one, other in both:
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@FORMS
def test_gradients_agree_with_finite_differences(causal):
    layer, keep = cosformer(causal, chunk=3), ragged(7)
    assert torch.autograd.gradcheck(lambda *inputs: layer.attend(*inputs, keep), qkv(7))


def test_a_constant_input_is_weighed_by_the_cosine_of_the_distance_alone():
    one = torch.ones(1, HEADS, 50, WIDTH).double()
    marks = torch.zeros_like(one)
    marks[:, :, 0] = 1.0
    out = cosformer(max_len=50).attend(one, one, marks, None)[0, 0, :, 0]
    place = torch.arange(50).double()
    near = torch.cos(math.pi / 2 * (place[:, None] - place) / 50)
    torch.testing.assert_close(out, near[:, 0] / near.sum(-1))
    assert (out.diff() < 0).all()


@FORMS
def test_fp32_stays_exact_to_the_end_of_a_long_sequence(causal):
    inputs = qkv(1000)
    expected = by_the_formula(*inputs, None, causal)
    out = cosformer(causal).attend(*(part.float() for part in inputs), None)
    assert (out - expected).norm() / expected.norm() < 1e-5


@pytest.mark.parametrize("cut", [1, 31, 32, 40, 99])
@pytest.mark.parametrize("scale", [-1.0, 1000.0])
def test_future_tokens_never_move_past_outputs_by_a_bit(scale, cut):
    layer, inputs = cosformer(True, chunk=32), qkv(100)
    changed = [torch.cat([part[:, :, :cut], scale * part[:, :, cut:]], 2) for part in inputs]
    before, after = layer.attend(*inputs, None), layer.attend(*changed, None)
    assert torch.equal(before[:, :, :cut], after[:, :, :cut])
    assert not torch.equal(before[:, :, cut:], after[:, :, cut:])


@FORMS
def test_more_tokens_never_change_how_fast_weights_fall(causal):
    layer, inputs, keep = cosformer(causal), qkv(40), torch.arange(40) < 30
    padded = layer.attend(*inputs, keep.expand(2, -1))[:, :, :30]
    short = layer.attend(*(part[:, :, :30] for part in inputs), None)
    torch.testing.assert_close(padded, short, rtol=1e-10, atol=1e-12)


@FORMS
def test_a_query_without_a_positive_coordinate_gives_zero_and_finite_gradients(causal):
    layer, (q, k, v) = cosformer(causal), qkv(9)
    q = torch.cat([-q[:, :, :1].abs(), q[:, :, 1:]], 2)
    out = layer.attend(q, k, v, None)
    assert (out[:, :, 0] == 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients(out, q, k, v))


@FORMS
def test_a_sample_without_real_tokens_gives_zero_and_finite_gradients(causal):
    layer, inputs, keep = cosformer(causal), qkv(9), ragged(9)
    keep[0] = False
    out = layer.attend(*inputs, keep)
    assert (out[0] == 0).all()
    assert (out[1] != 0).any()
    assert all(gradient.isfinite().all() for gradient in gradients(out, *inputs))


@FORMS
@pytest.mark.parametrize("scale", [1e-6, 1e3, 1e6])
def test_extreme_inputs_stay_finite_with_finite_gradients(scale, causal):
    layer, inputs = cosformer(causal), [part.float() for part in qkv(50, scale)]
    out = layer.attend(*inputs, None)
    assert out.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients(out, *inputs))


@FORMS
def test_angles_and_sums_are_fp32_under_autocast(causal):
    layer, keep = cosformer(causal).float(), ragged(200)
    q, k, v = (part.detach().bfloat16() for part in qkv(200))
    exact = layer.attend(q.float(), k.float(), v.float(), keep)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = layer.attend(q, k, v, keep)
    assert torch.equal(near, exact.bfloat16())


@FORMS
def test_several_layers_at_once_are_each_alone(causal):
    layers, keep = [cosformer(causal) for _ in range(3)], ragged(40)
    x = torch.randn(2, 40, HEADS * WIDTH).double()
    state = stack_module_state(layers)  # pyright: ignore[reportArgumentType]
    together = vmap(lambda one: functional_call(layers[0], one, (x, x, keep)).tokens)(state)
    alone = torch.stack([layer(x, x, keep).tokens for layer in layers])
    torch.testing.assert_close(together, alone)


def test_a_chunk_below_one_is_refused():
    with pytest.raises(Refused, match="chunk=0 must be at least 1"):
        cosformer(chunk=0)
