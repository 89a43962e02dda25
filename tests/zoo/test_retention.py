"""Retention against its formula, its recurrence, and cases known by hand."""

import jaxtyping
import pytest
import torch

from zoo.contract import Size
from zoo.kernels.rotary import rotated
from zoo.registry import Refused
from zoo.variants.retention import Retention, retain

HEADS, WIDTH = 2, 4
DIM = HEADS * WIDTH
FORMS = pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
PADDED = pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])


def retention(causal: bool = False, **options) -> Retention:
    size = Size(dim=DIM, heads=HEADS, max_len=1000, causal=causal, dropout=0.0)
    layer = Retention(size, **options).double()
    torch.nn.init.normal_(layer.norm.weight)
    torch.nn.init.normal_(layer.norm.bias)
    return layer


def draw(n: int) -> torch.Tensor:
    return torch.randn(2, n, DIM).double().requires_grad_()


def ragged(n: int) -> torch.Tensor:
    """Padding at the end of one sample; scattered through the other, from its first token on."""
    keep = torch.ones(2, n, dtype=torch.bool)
    keep[0, n - n // 3 :] = False
    keep[1, ::5] = False
    return keep


def by_the_formula(layer, x, keep):
    """One sample and head at a time, with padded tokens removed; zero where they stood."""
    out = torch.zeros_like(x)
    for b in range(len(x)):
        real = torch.arange(x.shape[1]) if keep is None else keep[b].nonzero()[:, 0]
        if len(real):
            out[b, real] = without_padding(layer, x[b, real])
    return out


def without_padding(layer, x):
    """Complex numbers turn what the layer rotates in pairs."""
    place = torch.arange(len(x)).double()
    gap = place[:, None] - place
    q, k, v = layer.query_key_value(x).chunk(3, -1)
    theta = 10000.0 ** (-2 * torch.arange(WIDTH // 2).double() / WIDTH)
    turn = torch.polar(torch.ones(len(x), WIDTH // 2).double(), place[:, None] * theta)
    heads = []
    for h, part in enumerate(torch.arange(DIM).chunk(HEADS)):
        gamma = 1 - 2.0 ** (-5 - h)
        fade = gamma ** gap.abs()
        if layer.size.causal:
            fade = fade * (gap >= 0)
        turned = [torch.complex(*side[:, part].chunk(2, -1)) * turn for side in (q, k)]
        scores = (turned[0] @ turned[1].mH).real / WIDTH**0.5
        y = (fade * scores) @ v[:, part]
        spread = (y.var(-1, keepdim=True, unbiased=False) + layer.norm.eps).sqrt()
        normed = (y - y.mean(-1, keepdim=True)) / spread
        heads.append(normed * layer.norm.weight[part] + layer.norm.bias[part])
    gate = layer.gate(x)
    return layer.out(gate * gate.sigmoid() * torch.cat(heads, -1))


def gradients(out: torch.Tensor, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    ramp = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return torch.autograd.grad((out * ramp).sum(), inputs)


def valid(out: torch.Tensor, keep: torch.Tensor | None) -> torch.Tensor:
    """`out` with zeros at padded positions, where it is unspecified."""
    return out if keep is None else out * keep[..., None]


@FORMS
@PADDED
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 63, 100, 1000])
def test_output_and_gradients_are_those_of_the_formula(n, padded, causal):
    layer, x, keep = retention(causal, chunk=16), draw(n), ragged(n) if padded else None
    out, expected = valid(layer(x, x, keep).tokens, keep), by_the_formula(layer, x, keep)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-11)
    inputs = [x, *layer.parameters()]
    both = zip(gradients(out, *inputs), gradients(expected, *inputs), strict=True)
    for one, other in both:
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_the_causal_form_is_the_papers_recurrence():
    q, k, v = (torch.randn(2, HEADS, 50, WIDTH).double() for _ in range(3))
    gamma = torch.tensor([1 - 1 / 32, 1 - 1 / 64]).double()[:, None, None]
    state, found = torch.zeros(2, HEADS, WIDTH, WIDTH).double(), []
    for i in range(50):
        state = gamma * state + k[:, :, i, :, None] * v[:, :, i, None, :]
        found.append(torch.einsum("bhe,bhef->bhf", q[:, :, i], state))
    torch.testing.assert_close(retain(q, k, v, 16, True), torch.stack(found, 2))


def test_a_rotation_keeps_lengths_and_knows_distances_only():
    x = torch.randn(1, 1, 1, 6).double().expand(1, 1, 4000, 6)
    turned = rotated(x)[0, 0]
    torch.testing.assert_close(turned.norm(dim=-1), x[0, 0].norm(dim=-1))
    products = (turned[:-7] * turned[7:]).sum(-1)
    torch.testing.assert_close(products, products[0].expand(3993))
    assert (turned[1:] - turned[0]).abs().amax(-1).min() > 1e-3


@FORMS
@pytest.mark.parametrize("chunk", [1, 7, 99, 100, 1000])
def test_the_size_of_a_chunk_does_not_matter(chunk, causal):
    layer, x, keep = retention(causal, chunk=16), draw(100), ragged(100)
    expected = layer(x, x, keep).tokens
    layer.chunk = chunk
    torch.testing.assert_close(layer(x, x, keep).tokens, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("cut", [1, 31, 32, 40, 99])
@pytest.mark.parametrize("scale", [-1.0, 1000.0])
def test_future_tokens_never_move_past_outputs_by_a_bit(scale, cut):
    layer, x = retention(True, chunk=32), draw(100)
    changed = torch.cat([x[:, :cut], scale * x[:, cut:]], 1)
    before, after = layer(x, x, None).tokens, layer(changed, changed, None).tokens
    assert torch.equal(before[:, :cut], after[:, :cut])
    assert not torch.equal(before[:, cut:], after[:, cut:])


@FORMS
def test_long_sequences_stay_exact_in_fp32(causal):
    q, k, v = (torch.randn(1, 4, 6000, 2).double() for _ in range(3))
    place = torch.arange(6000).double()
    near = retain(q.float(), k.float(), v.float(), 128, causal)
    # The slowest of four heads forgets half within 178 tokens.
    for h in range(4):
        fade = (1 - 2.0 ** (-5 - h)) ** (place[:, None] - place).abs()
        fade = fade.tril() if causal else fade
        exact = (fade * (q[0, h] @ k[0, h].T)) @ v[0, h]
        assert (near[0, h] - exact).norm() / exact.norm() < 1e-6


@FORMS
def test_a_sample_of_padding_alone_leaves_finite_gradients_and_others_alone(causal):
    layer, x, keep = retention(causal, chunk=8), draw(20), ragged(20)
    before = layer(x, x, keep).tokens[1]
    keep[0] = False
    out = layer(x, x, keep).tokens
    assert torch.equal(out[1], before)
    assert out.isfinite().all()
    assert all(part.isfinite().all() for part in gradients(out, x, *layer.parameters()))


@FORMS
def test_padded_content_does_not_matter(causal):
    layer, x, keep = retention(causal, chunk=8), draw(40), ragged(40)
    other = torch.where(keep[..., None], x, 1e4)
    before, after = (valid(layer(one, one, keep).tokens, keep) for one in (x, other))
    torch.testing.assert_close(before, after, rtol=1e-12, atol=0)


@FORMS
def test_bf16_autocast_stays_near_fp32(causal):
    layer, x, keep = retention(causal).float(), torch.randn(2, 200, DIM), ragged(200)
    exact = layer(x, x, keep).tokens
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = layer(x, x, keep).tokens
    assert (near - exact)[keep].norm() / exact[keep].norm() < 0.05


@PADDED
def test_several_layers_run_at_once_under_vmap(monkeypatch, padded):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    layers, x = [retention(chunk=8) for _ in range(3)], draw(20).detach()
    keep = ragged(20) if padded else None
    stacked = torch.func.stack_module_state(layers)
    run = torch.func.vmap(
        lambda state: torch.func.functional_call(layers[0], state, (x, x, keep)).tokens
    )
    expected = torch.stack([layer(x, x, keep).tokens for layer in layers])
    torch.testing.assert_close(run(stacked), expected)


def test_a_chunk_without_tokens_is_refused():
    with pytest.raises(Refused, match=r"retention\.chunk=0 must be at least 1"):
        retention(chunk=0)


def test_a_head_of_odd_width_is_refused():
    with pytest.raises(Refused, match="dim=6 over heads=2 leaves 3; choose a dim"):
        Retention(Size(dim=6, heads=2, max_len=9, causal=False, dropout=0.0))
