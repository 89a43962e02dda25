"""Nyström attention against a loop over its formula, exact softmax, and the published package."""

import pytest
import torch

from zoo.contract import Size
from zoo.registry import Refused
from zoo.variants.nystrom import Nystrom, pseudo_inverse

HEADS, WIDTH = 2, 4
PADDED = pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])


def nystrom(**options) -> Nystrom:
    size = Size(dim=HEADS * WIDTH, heads=HEADS, max_len=1000, causal=False, dropout=0.0)
    return Nystrom(size, **options).double()


def qkv(n: int) -> list[torch.Tensor]:
    return [torch.randn(2, HEADS, n, WIDTH).double().requires_grad_() for _ in range(3)]


def ragged(n: int) -> torch.Tensor:
    """Padding at the end of one sample; scattered through the other, from its first token on."""
    keep = torch.ones(2, n, dtype=torch.bool)
    keep[0, n - n // 3 :] = False
    keep[1, ::5] = False
    return keep


def by_the_formula(q, k, v, keep, landmarks, iterations):
    """One sample and head at a time, with padded tokens removed; zero where they stood."""
    out = torch.zeros_like(q)
    for b in range(q.shape[0]):
        real = torch.arange(q.shape[2]) if keep is None else keep[b].nonzero()[:, 0]
        for h in range(q.shape[1] if len(real) else 0):
            parts = (part[b, h, real] for part in (q, k, v))
            out[b, h, real] = without_padding(*parts, landmarks, iterations)
    return out


def without_padding(q, k, v, landmarks, iterations):
    q, count = q / q.shape[1] ** 0.5, len(q)
    segments = [[r for r in range(count) if r * landmarks // count == s] for s in range(landmarks)]
    q_marks, k_marks = (torch.stack([x[s].mean(0) for s in segments if s]) for x in (q, k))
    a = (q_marks @ k_marks.T).softmax(1)
    z = a.T / (a.sum(0).max() * a.sum(1).max())
    one = torch.eye(len(a), dtype=a.dtype)
    for _ in range(iterations):
        z = 0.25 * z @ (13 * one - a @ z @ (15 * one - a @ z @ (7 * one - a @ z)))
    return (q @ k_marks.T).softmax(1) @ z @ (q_marks @ k.T).softmax(1) @ v


def softmax_attention(q, k, v, keep=None):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if keep is not None:
        scores = scores.masked_fill(~keep[:, None, None, :], -torch.inf)
    return scores.softmax(-1) @ v


def gradients(out: torch.Tensor, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    ramp = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return torch.autograd.grad((out * ramp).sum(), inputs)


def valid(out: torch.Tensor, keep: torch.Tensor | None) -> torch.Tensor:
    """`out` with zeros at padded positions, where it is unspecified."""
    return out if keep is None else out * keep[:, None, :, None]


@PADDED
@pytest.mark.parametrize("n", [1, 7, 15, 16, 17, 63, 100, 1000])
def test_output_and_gradients_are_those_of_the_formula(n, padded):
    inputs, keep = qkv(n), ragged(n) if padded else None
    out = valid(nystrom(landmarks=16).attend(*inputs, keep), keep)
    expected = by_the_formula(*inputs, keep, 16, 6)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-11)
    both = zip(gradients(out, *inputs), gradients(expected, *inputs), strict=True)
    for one, other in both:
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


@PADDED
@pytest.mark.parametrize("n", [1, 63, 100, 1000])
def test_the_convolution_adds_neighbouring_values_as_if_none_were_padded_between(n, padded):
    layer, inputs, keep = nystrom(landmarks=16, conv=5), qkv(n), ragged(n) if padded else None
    out = valid(layer.attend(*inputs, keep), keep)
    kernel = dict(layer.named_parameters())["conv.weight"]
    local = torch.zeros_like(out)
    for b, sample in enumerate(inputs[2]):
        real = torch.arange(n) if keep is None else keep[b].nonzero()[:, 0]
        wider = torch.nn.functional.pad(sample[:, real], (0, 0, 2, 2))
        taps = [kernel[:, 0, tap, :, None] * wider[:, tap : tap + len(real)] for tap in range(5)]
        local[b, :, real] = sum(taps)
    expected = by_the_formula(*inputs, keep, 16, 6) + local
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-11)
    both = zip(gradients(out, *inputs, kernel), gradients(expected, *inputs, kernel), strict=True)
    for one, other in both:
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


@PADDED
@pytest.mark.parametrize("landmarks", [63, 64, 100])
def test_a_landmark_for_every_token_gives_exact_softmax(landmarks, padded):
    inputs, keep = qkv(63), ragged(63) if padded else None
    out = nystrom(landmarks=landmarks, iterations=40).attend(*inputs, keep)
    expected = softmax_attention(*inputs, keep)
    torch.testing.assert_close(valid(out, keep), valid(expected, keep), rtol=0, atol=1e-8)


def test_more_iterations_come_nearer_to_exact_softmax():
    inputs = [part.detach() for part in qkv(32)]
    exact = softmax_attention(*inputs)
    layers = [nystrom(landmarks=32, iterations=count) for count in (4, 8, 12, 16)]
    errors = [float((x.attend(*inputs, None) - exact).norm() / exact.norm()) for x in layers]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.01 * errors[0]


def test_more_landmarks_come_nearer_to_exact_softmax_on_smooth_inputs():
    time = torch.linspace(0, 1, 512).double()
    waves = torch.arange(1, 5) * torch.rand(3, 2, HEADS, WIDTH, 4).double()
    inputs = 1.5 * torch.sin(2 * waves[..., None] * time).sum(-2).mT
    exact = softmax_attention(*inputs)
    layers = [nystrom(landmarks=count, iterations=20) for count in (8, 16, 32, 64)]
    errors = [float((x.attend(*inputs, None) - exact).norm() / exact.norm()) for x in layers]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.1 * errors[0]


def test_the_iteration_converges_to_the_moore_penrose_inverse():
    a = torch.randn(2, 3, 12, 12).double().softmax(-1)
    torch.testing.assert_close(pseudo_inverse(a, 40), torch.linalg.pinv(a), rtol=0, atol=1e-8)


def test_a_batch_mate_of_huge_scale_does_not_move_a_sample():
    layer, inputs = nystrom(landmarks=8), qkv(40)
    loud = [torch.cat([part[:1], 1e3 * part[1:]]) for part in inputs]
    before, after = layer.attend(*inputs, None), layer.attend(*loud, None)
    torch.testing.assert_close(before[0], after[0], rtol=1e-12, atol=0)


def test_one_head_does_not_move_another():
    layer, inputs = nystrom(landmarks=8), qkv(40)
    loud = [torch.cat([part[:, :1], 1e3 * part[:, 1:]], 1) for part in inputs]
    before, after = layer.attend(*inputs, None), layer.attend(*loud, None)
    torch.testing.assert_close(before[:, 0], after[:, 0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("conv", [0, 5])
@pytest.mark.parametrize("real", [1, 5, 16, 17, 30])
def test_padding_at_the_end_changes_nothing(real, conv):
    layer, inputs, keep = nystrom(landmarks=16, conv=conv), qkv(40), torch.arange(40) < real
    padded = layer.attend(*inputs, keep.expand(2, -1))[:, :, :real]
    short = layer.attend(*(part[:, :, :real] for part in inputs), None)
    torch.testing.assert_close(padded, short, rtol=1e-9, atol=1e-12)


def test_padded_content_does_not_matter():
    layer, inputs, keep = nystrom(landmarks=16, conv=5), qkv(40), ragged(40)
    other = [torch.where(keep[:, None, :, None], part, 1e4) for part in inputs]
    before, after = (valid(layer.attend(*parts, keep), keep) for parts in (inputs, other))
    torch.testing.assert_close(before, after, rtol=1e-12, atol=0)


def test_a_sample_without_real_tokens_gives_zero_and_finite_gradients():
    layer, inputs, keep = nystrom(landmarks=4), qkv(9), ragged(9)
    keep[0] = False
    out = layer.attend(*inputs, keep)
    assert (out[0] == 0).all()
    assert (out[1] != 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients(out, *inputs))


@pytest.mark.parametrize("conv", [0, 5])
def test_bf16_autocast_stays_near_fp32(conv):
    layer, x = nystrom(landmarks=16, conv=conv).float(), torch.randn(2, 200, HEADS * WIDTH)
    keep = ragged(200)
    exact = layer(x, x, keep).tokens
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = layer(x, x, keep).tokens
    assert (near - exact)[keep].norm() / exact[keep].norm() < 0.05


def test_landmarks_and_pseudo_inverse_are_fp32_under_autocast():
    layer, keep = nystrom(landmarks=16).float(), ragged(200)
    q, k, v = (part.detach().bfloat16() for part in qkv(200))
    exact = layer.attend(q.float(), k.float(), v.float(), keep)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = layer.attend(q, k, v, keep)
    assert torch.equal(near, exact.bfloat16())


@pytest.mark.parametrize(
    "options", [{"landmarks": 0}, {"iterations": -1}, {"conv": 4}, {"conv": -3}]
)
def test_impossible_options_are_refused(options):
    name, value = next(iter(options.items()))
    with pytest.raises(Refused, match=f"nystrom.{name}={value}"):
        nystrom(**options)


def test_the_published_package_agrees_on_one_sample_and_head():
    package = pytest.importorskip("nystrom_attention")
    theirs = package.NystromAttention(
        dim=WIDTH, dim_head=WIDTH, heads=1, num_landmarks=16, residual=False
    ).double()
    theirs.to_qkv = theirs.to_out = torch.nn.Identity()
    q, k, v = (part[:1, :1] for part in qkv(64))
    expected = theirs(torch.cat([q, k, v], -1)[:, 0])
    out = nystrom(landmarks=16).attend(*(part.expand(2, 2, -1, -1) for part in (q, k, v)), None)
    torch.testing.assert_close(out[1, 1], expected[0], rtol=1e-9, atol=1e-11)
