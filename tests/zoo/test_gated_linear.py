"""Gated linear attention against its recurrence, token by token."""

import jaxtyping
import pytest
import torch

from zoo.contract import Size
from zoo.registry import Refused
from zoo.variants.gated_linear import GatedLinear, recur

HEADS, WIDTH = 2, 4
DIM = HEADS * WIDTH
FORMS = pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
PADDED = pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])


def gated(causal: bool = False, **options) -> GatedLinear:
    size = Size(dim=DIM, heads=HEADS, max_len=1000, causal=causal, dropout=0.0)
    layer = GatedLinear(size, **options).double()
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
    """One sample at a time, with padded tokens removed; zero where they stood."""
    out = torch.zeros_like(x)
    for b in range(len(x)):
        real = torch.arange(x.shape[1]) if keep is None else keep[b].nonzero()[:, 0]
        if len(real):
            out[b, real] = without_padding(layer, x[b, real])
    return out


def without_padding(layer, x):
    q, k, v = (part.unflatten(-1, (HEADS, -1)) for part in layer.query_key_value(x).chunk(3, -1))
    down, up = layer.forget[0].weight, layer.forget[1]
    alpha = (x @ down.T @ up.weight.T + up.bias).sigmoid() ** (1 / layer.temperature)
    alpha = alpha.unflatten(-1, (HEADS, -1))
    q = q / WIDTH**0.5
    y = steps(q, k, v, alpha)
    if not layer.size.causal:
        own = torch.einsum("nhe,nhe,nhf->nhf", q, k, v)
        y = y + steps(*(part.flip(0) for part in (q, k, v, alpha))).flip(0) - own
    y = y - y.mean(-1, keepdim=True)
    y = y / (y.square().mean(-1, keepdim=True) + layer.norm.eps).sqrt()
    y = y.flatten(1) * layer.norm.weight + layer.norm.bias
    gate = layer.gate(x)
    return layer.out(gate * gate.sigmoid() * y)


def steps(q, k, v, alpha):
    """The paper's recurrence, one token after the other."""
    state, found = q.new_zeros(HEADS, WIDTH, WIDTH), []
    for query, key, value, kept in zip(q, k, v, alpha, strict=True):
        state = kept[:, :, None] * state + key[:, :, None] * value[:, None, :]
        found.append(torch.einsum("he,hef->hf", query, state))
    return torch.stack(found)


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
    # A temperature of 1 lets the gates differ, and the memory fade, within a chunk.
    layer = gated(causal, chunk=16, temperature=1.0 if n % 2 else 16.0)
    x, keep = draw(n), ragged(n) if padded else None
    out, expected = valid(layer(x, x, keep).tokens, keep), by_the_formula(layer, x, keep)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-11)
    inputs = [x, *layer.parameters()]
    both = zip(gradients(out, *inputs), gradients(expected, *inputs), strict=True)
    for one, other in both:
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


@FORMS
@pytest.mark.parametrize("chunk", [1, 2, 64, 128, 1024])
def test_the_size_of_a_chunk_does_not_matter(chunk, causal):
    layer, x, keep = gated(causal, chunk=16), draw(100), ragged(100)
    expected = layer(x, x, keep).tokens
    layer.chunk = chunk
    torch.testing.assert_close(layer(x, x, keep).tokens, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("cut", [1, 31, 32, 40, 99])
@pytest.mark.parametrize("scale", [-1.0, 1000.0])
def test_future_tokens_never_move_past_outputs_by_a_bit(scale, cut):
    layer, x = gated(True, chunk=32), draw(100)
    changed = torch.cat([x[:, :cut], scale * x[:, cut:]], 1)
    before, after = layer(x, x, None).tokens, layer(changed, changed, None).tokens
    assert torch.equal(before[:, :cut], after[:, :cut])
    assert not torch.equal(before[:, cut:], after[:, cut:])


@pytest.mark.parametrize("strength", [0.0, 1.0, 30.0, 1e3, 1e6])
def test_gates_of_any_strength_are_exact_in_fp32_with_finite_gradients(strength):
    # Closed for one token in three, all but open for the rest: the products of a chunk vanish.
    q, k, v = (torch.randn(2, HEADS, 300, WIDTH) for _ in range(3))
    closed = (torch.arange(300) % 3 == 0)[:, None].float() * torch.rand(2, HEADS, 300, WIDTH)
    log_alpha = -strength * closed - 0.01 * torch.rand(2, HEADS, 300, WIDTH)
    narrow = [part.requires_grad_() for part in (q, k, v, log_alpha)]
    wide = [part.detach().double().requires_grad_() for part in narrow]
    state, found = torch.zeros(2, HEADS, WIDTH, WIDTH).double(), []
    for i in range(300):
        state = state * wide[3][:, :, i].exp()[..., None]
        found.append(torch.einsum("bhe,bhef->bhf", wide[0][:, :, i], state))
        state = state + wide[1][:, :, i, :, None] * wide[2][:, :, i, None, :]
    out, exact = recur(*narrow, 64), torch.stack(found, 2)
    assert (out - exact).norm() / exact.norm() < 1e-6
    for one, other in zip(gradients(out, *narrow), gradients(exact, *wide), strict=True):
        assert (one - other).norm() <= 1e-5 * other.norm()


@FORMS
@pytest.mark.parametrize("scale", [1e2, 1e4])
def test_loud_tokens_stay_finite_with_finite_gradients(scale, causal):
    layer = gated(causal).float()
    x = (scale * torch.randn(2, 200, DIM)).requires_grad_()
    out = layer(x, x, None).tokens
    assert out.isfinite().all()
    assert all(part.isfinite().all() for part in gradients(out, x, *layer.parameters()))


@FORMS
def test_a_sample_of_padding_alone_leaves_finite_gradients_and_others_alone(causal):
    layer, x, keep = gated(causal, chunk=8), draw(20), ragged(20)
    before = layer(x, x, keep).tokens[1]
    keep[0] = False
    out = layer(x, x, keep).tokens
    assert torch.equal(out[1], before)
    assert out.isfinite().all()
    assert all(part.isfinite().all() for part in gradients(out, x, *layer.parameters()))


@FORMS
def test_padded_content_does_not_matter(causal):
    layer, x, keep = gated(causal, chunk=8), draw(40), ragged(40)
    other = torch.where(keep[..., None], x, 1e4)
    before, after = (valid(layer(one, one, keep).tokens, keep) for one in (x, other))
    torch.testing.assert_close(before, after, rtol=1e-12, atol=0)


@FORMS
def test_bf16_autocast_stays_near_fp32(causal):
    layer, x, keep = gated(causal).float(), torch.randn(2, 200, DIM), ragged(200)
    exact = layer(x, x, keep).tokens
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = layer(x, x, keep).tokens
    assert (near - exact)[keep].norm() / exact[keep].norm() < 0.05


@PADDED
def test_several_layers_run_at_once_under_vmap(monkeypatch, padded):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    layers, x = [gated(chunk=8) for _ in range(3)], draw(20).detach()
    keep = ragged(20) if padded else None
    stacked = torch.func.stack_module_state(layers)
    run = torch.func.vmap(
        lambda state: torch.func.functional_call(layers[0], state, (x, x, keep)).tokens
    )
    expected = torch.stack([layer(x, x, keep).tokens for layer in layers])
    torch.testing.assert_close(run(stacked), expected)


@pytest.mark.parametrize(
    "options", [{"gate_rank": 0}, {"temperature": 0.0}, {"chunk": 0}, {"chunk": 48}]
)
def test_impossible_options_are_refused(options):
    name, value = next(iter(options.items()))
    with pytest.raises(Refused, match=f"gated-linear.{name}={value} must be"):
        gated(**options)
