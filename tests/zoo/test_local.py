"""Sliding-window attention against its formula, exact softmax, and the published package."""

import jaxtyping
import pytest
import torch

from zoo.contract import Size
from zoo.registry import Refused
from zoo.variants.local import Local

HEADS, WIDTH = 2, 4
FORMS = pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
PADDED = pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])


def local(causal: bool = False, dropout: float = 0.0, **options) -> Local:
    size = Size(dim=HEADS * WIDTH, heads=HEADS, max_len=1000, causal=causal, dropout=dropout)
    return Local(size, **options).double()


def qkv(n: int) -> list[torch.Tensor]:
    return [torch.randn(2, HEADS, n, WIDTH).double().requires_grad_() for _ in range(3)]


def ragged(n: int) -> torch.Tensor:
    """Padding at the end of one sample; scattered through the other, from its first token on."""
    keep = torch.ones(2, n, dtype=torch.bool)
    keep[0, n - n // 3 :] = False
    keep[1, ::5] = False
    return keep


def by_the_formula(q, k, v, keep, window, causal):
    """All n x n weights, one sample at a time with padded tokens removed; zero where they stood."""
    out = torch.zeros_like(q)
    for b in range(q.shape[0]):
        real = torch.arange(q.shape[2]) if keep is None else keep[b].nonzero()[:, 0]
        rank = torch.arange(len(real))
        gap = rank[:, None] - rank
        seen = (gap.abs() <= window) & (gap >= 0 if causal else True)
        scores = q[b][:, real] @ k[b][:, real].mT / q.shape[-1] ** 0.5
        out[b, :, real] = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v[b][:, real]
    return out


def gradients(out: torch.Tensor, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    ramp = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return torch.autograd.grad((out * ramp).sum(), inputs)


def valid(out: torch.Tensor, keep: torch.Tensor | None) -> torch.Tensor:
    """`out` with zeros at padded positions, where it is unspecified."""
    return out if keep is None else out * keep[:, None, :, None]


@FORMS
@PADDED
@pytest.mark.parametrize("window", [1, 7, 64])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 63, 64, 65, 100, 1000])
def test_output_and_gradients_are_those_of_the_formula(n, window, padded, causal):
    inputs, keep = qkv(n), ragged(n) if padded else None
    out = valid(local(causal, window=window).attend(*inputs, keep), keep)
    expected = by_the_formula(*inputs, keep, window, causal)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-12)
    both = zip(gradients(out, *inputs), gradients(expected, *inputs), strict=True)
    for one, other in both:
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@FORMS
@pytest.mark.parametrize("window", [99, 100, 5000])
def test_a_window_over_all_tokens_gives_exact_softmax(window, causal):
    inputs = qkv(100)
    expected = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=causal)
    out = local(causal, window=window).attend(*inputs, None)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-12)


@FORMS
def test_a_token_moves_those_within_the_window_and_no_other_by_a_bit(causal):
    layer, inputs = local(causal, window=8), qkv(64)
    changed = [part.detach().clone() for part in inputs]
    for part in changed:
        part[:, :, 30] *= -1e3
    moved = (layer.attend(*changed, None) != layer.attend(*inputs, None)).any(-1).any(1).any(0)
    expected = torch.zeros(64, dtype=torch.bool)
    expected[30 if causal else 22 : 39] = True
    assert torch.equal(moved, expected)


@FORMS
def test_padded_content_does_not_matter_and_a_padded_sample_is_zero(causal):
    layer, inputs, keep = local(causal, window=8), qkv(40), ragged(40)
    keep[0] = False
    other = [torch.where(keep[:, None, :, None], part, 1e4) for part in inputs]
    before, after = layer.attend(*inputs, keep), layer.attend(*other, keep)
    torch.testing.assert_close(valid(before, keep), valid(after, keep), rtol=1e-12, atol=0)
    assert (before[0] == 0).all()
    assert (before[1][:, keep[1]] != 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients(before, *inputs))


def test_dropout_falls_on_weights_in_training_only():
    inputs = [part.detach() for part in qkv(50)]
    exact = local(window=8).attend(*inputs, None)
    layer = local(dropout=0.5, window=8)
    outs = torch.stack([layer.attend(*inputs, None) for _ in range(400)])
    assert (outs[0] != exact).any()
    # Dropping weights leaves the mean: 400 draws have a standard error of 5 % of a deviation.
    assert ((outs.mean(0) - exact).abs() < 0.3 * outs.std(0) + 1e-12).all()
    assert torch.equal(layer.eval().attend(*inputs, None), exact)


@FORMS
def test_bf16_autocast_stays_near_fp32(causal):
    layer, x, keep = local(causal).float(), torch.randn(2, 200, HEADS * WIDTH), ragged(200)
    exact = layer(x, x, keep).tokens
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = layer(x, x, keep).tokens
    assert (near - exact)[keep].norm() / exact[keep].norm() < 0.03


@PADDED
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_several_layers_run_at_once_under_vmap(monkeypatch, padded):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    layers, x = [local(window=8) for _ in range(3)], torch.randn(2, 20, HEADS * WIDTH).double()
    keep = ragged(20) if padded else None
    stacked = torch.func.stack_module_state(layers)
    run = torch.func.vmap(
        lambda state: torch.func.functional_call(layers[0], state, (x, x, keep)).tokens
    )
    expected = torch.stack([layer(x, x, keep).tokens for layer in layers])
    torch.testing.assert_close(run(stacked), expected)


def test_a_window_without_tokens_is_refused():
    with pytest.raises(Refused, match=r"local\.window=0 must be at least 1"):
        local(window=0)


@FORMS
@PADDED
def test_the_published_package_agrees(causal, padded):
    package = pytest.importorskip("local_attention")
    theirs = package.LocalAttention(
        16, causal=causal, exact_windowsize=True, use_rotary_pos_emb=False
    )
    inputs, keep = qkv(96), torch.ones(2, 96, dtype=torch.bool)
    if padded:
        # At the end: it numbers padded tokens too.
        keep[0, 60:] = False
    out = local(causal, window=16).attend(*inputs, keep if padded else None)
    expected = theirs(*inputs, mask=keep)
    torch.testing.assert_close(valid(out, keep), valid(expected, keep), rtol=1e-10, atol=1e-12)
