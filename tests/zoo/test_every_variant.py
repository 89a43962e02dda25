"""What holds for every registered variant, whoever wrote it: registration is enrolment."""

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

from zoo.contract import Attended, Attention, Size, Unsupported, claimants
from zoo.registry import resolve
from zoo.variants import variants

DIM, HEADS, MAX_LEN = 16, 2, 160
LONG = 150

FORMS = [
    pytest.param(name, causal, id=f"{name}-causal" if causal else name)
    for name, found in variants.items()
    for causal in ([False, True] if found.traits.causal else [False])
]
every_form = pytest.mark.parametrize(("name", "causal"), FORMS)


def claiming(trait: str, yes: bool) -> pytest.MarkDecorator:
    """Over the variants that claim `trait`, or over those that do not."""
    found = [name for name, variant in variants.items() if getattr(variant.traits, trait) is yes]
    return pytest.mark.parametrize("name", found)


def build(name: str, causal: bool = False, dropout: float = 0.0, seed: int = 1) -> Attention:
    """The variant with its default options, in double precision, training."""
    torch.manual_seed(seed)
    variant = variants.find(name)
    size = Size(dim=DIM, heads=HEADS, max_len=MAX_LEN, causal=causal, dropout=dropout)
    return variant(size, **resolve(name, variant, {})).double()


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, DIM, dtype=torch.float64)


def attend(layer: Attention, x: Tensor, keep: Tensor | None = None) -> Tensor:
    return layer(x, x, keep).tokens


def loss(attended: Attended, keep: Tensor | None = None) -> Tensor:
    """A training loss to which every coordinate of every real token speaks, with its own weight."""
    tokens = attended.tokens if keep is None else attended.tokens[keep]
    ramp = torch.linspace(-1, 1.3, tokens.numel(), dtype=tokens.dtype).reshape(tokens.shape)
    return (tokens * ramp).sum() + sum(attended.losses.values())


def same(one: Tensor, other: Tensor) -> None:
    """Equal up to rounding in double precision."""
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def paddings() -> dict[str, Tensor]:
    """Padding behind the real tokens, ragged, and padding before, between and behind them."""
    place = torch.arange(LONG)
    end = place < torch.tensor([LONG, 101, 7])[:, None]
    middle = torch.stack([(place < 30) | (place > 90), place % 3 > 0, (place > 3) & (place < 140)])
    return {"end": end, "middle": middle}


@every_form
@pytest.mark.parametrize("padding", ["end", "middle"])
@pytest.mark.parametrize("loudness", [1.0, 1e4], ids=["noise", "loud"])
def test_padded_tokens_never_move_a_real_one(name, causal, padding, loudness):
    layer, x, keep = build(name, causal).eval(), draw(3, LONG), paddings()[padding]
    disturbed = torch.where(keep[..., None], x, loudness * draw(3, LONG))
    same(attend(layer, disturbed, keep)[keep], attend(layer, x, keep)[keep])


@every_form
@pytest.mark.parametrize("padding", ["end", "middle"])
def test_a_padded_sample_is_what_its_real_tokens_are_alone(name, causal, padding):
    layer, x, keep = build(name, causal).eval(), draw(3, LONG), paddings()[padding]
    padded = attend(layer, x, keep)
    for sample, kept, tokens in zip(x, keep, padded, strict=True):
        same(tokens[kept], attend(layer, sample[kept][None])[0])


@every_form
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_batch_mates_never_move_a_sample(name, causal, padded):
    layer, x = build(name, causal).eval(), draw(3, LONG)
    keep = paddings()["middle"] if padded else None
    x[1:] *= 100
    alone = attend(layer, x[:1], None if keep is None else keep[:1])[0]
    together = attend(layer, x, keep)[0]
    real = ... if keep is None else keep[0]
    same(together[real], alone[real])


@every_form
def test_every_parameter_learns(name, causal):
    layer, x = build(name, causal), draw(2, LONG).requires_grad_()
    loss(layer(x, x, None)).backward()
    for label, tensor in [("x", x), *layer.named_parameters()]:
        assert tensor.grad is not None, label
        assert tensor.grad.isfinite().all(), label
        assert tensor.grad.abs().max() > 1e-9, label


@every_form
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_one_seed_gives_one_result_to_the_bit(name, causal, training):
    keep, runs = paddings()["middle"], []
    for _ in range(2):
        layer = build(name, causal, dropout=0.2).float().train(training)
        x = torch.randn(3, LONG, DIM)
        attended = layer(x, x, keep)
        gradients = torch.autograd.grad(
            loss(attended), list(layer.parameters()), materialize_grads=True
        )
        runs.append([attended.tokens, *attended.losses.values(), *gradients])
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


@claiming("causal", True)
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("now", [1, 64, 149])
def test_the_future_never_moves_the_past(name, training, now):
    layer, x = build(name, causal=True).train(training), draw(3, LONG)
    futures = [draw(3, LONG), 1000 * x, -1000 * draw(3, LONG), torch.zeros_like(x)]
    for keep in (None, paddings()["middle"]):
        seen = slice(None) if keep is None else keep[:, :now]
        before = attend(layer, x, keep)[:, :now][seen]
        for future in futures:
            changed = torch.cat([x[:, :now], future[:, now:]], dim=1)
            same(attend(layer, changed, keep)[:, :now][seen], before)


@claiming("causal", True)
@pytest.mark.parametrize("loudness", [1, 10, 20, 30, 100])
def test_the_future_moves_the_past_by_no_underflow_either(name, loudness):
    # Single precision, where a maximum over the future would lose a past of another scale.
    layer, past = build(name, causal=True).float().eval(), loudness * torch.randn(3, LONG, DIM)
    before = attend(layer, past)[:, :140]
    for scale in (0.0, 1e-3, 1e3):
        changed = torch.cat([past[:, :140], scale * past[:, 140:]], dim=1)
        after = attend(layer, changed)[:, :140]
        torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-5)


def moved_by_the_first_token(name: str, causal: bool) -> Tensor:
    """Which outputs of a form change with its first token."""
    layer, x = build(name, causal).eval(), draw(1, LONG)
    changed = x.clone()
    changed[:, 0] += 1.0
    return (attend(layer, changed) - attend(layer, x)).abs().amax((0, 2)) > 1e-9


@claiming("causal", True)
def test_the_past_moves_the_future_of_a_causal_form_as_far_as_of_the_other(name):
    causal, other = (moved_by_the_first_token(name, form) for form in (True, False))
    assert causal[0]
    assert (causal | ~other).all()


@claiming("causal", False)
def test_causality_that_is_not_claimed_is_refused(name):
    with pytest.raises(Unsupported, match=f"{name} is not causal; .*{claimants('causal')}"):
        build(name, causal=True)


@every_form
def test_a_sample_of_padding_alone_stays_finite(name, causal):
    layer, x = build(name, causal), draw(3, LONG).requires_grad_()
    keep = paddings()["middle"]
    keep[1] = False
    for mask in (keep, torch.zeros_like(keep)):
        layer.zero_grad()
        attended = layer(x, x, mask)
        # Padded outputs take part: what a later layer makes of them must not be NaN either.
        gradients = torch.autograd.grad(
            loss(attended), [x, *layer.parameters()], materialize_grads=True
        )
        assert all(part.isfinite().all() for part in (attended.tokens, *gradients))
        assert all(term.isfinite() for term in attended.losses.values())


@every_form
def test_losses_are_those_declared_and_come_in_training_only(name, causal):
    layer, x = build(name, causal), draw(2, LONG)
    losses = layer(x, x, None).losses
    assert set(losses) == set(layer.traits.losses)
    assert all(term.shape == () and term.requires_grad for term in losses.values())
    assert dict(layer.eval()(x, x, None).losses) == {}


def snapshot(layer: nn.Module) -> list:
    """Whatever a forward could write: attributes, by identity, and tensors, by value."""
    stores = ("_parameters", "_buffers", "_modules")
    seen: list = []
    for label, module in layer.named_modules():
        seen.append((label, {key: id(value) for key, value in vars(module).items()}))
        seen += [{key: id(value) for key, value in vars(module)[one].items()} for one in stores]
    tensors = [*layer.parameters(), *layer.buffers()]
    return [*seen, [tensor.detach().tolist() for tensor in tensors]]


@every_form
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_forward_writes_nothing(name, causal, training):
    layer, x = build(name, causal, dropout=0.2).train(training), draw(3, LONG)
    before, inputs = snapshot(layer), x.clone()
    layer(x, x, paddings()["middle"])
    assert snapshot(layer) == before
    assert torch.equal(x, inputs)


@every_form
@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 128, 129, MAX_LEN])
def test_any_length_runs(name, causal, n):
    layer, x = build(name, causal).float(), torch.randn(2, n, DIM)
    attended = layer(x, x, None)
    loss(attended).backward()
    assert attended.tokens.shape == x.shape
    assert attended.tokens.dtype == x.dtype
    assert attended.tokens.isfinite().all()


@every_form
def test_a_state_dict_restores_the_layer_to_the_bit(name, causal):
    layer, x = build(name, causal, seed=1).eval(), draw(2, LONG)
    other = build(name, causal, seed=2).eval()
    assert not torch.equal(attend(other, x), attend(layer, x))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(attend(other, x), attend(layer, x))


@every_form
def test_evaluation_repeats_to_the_bit(name, causal):
    layer, x = build(name, causal, dropout=0.2).eval(), draw(2, LONG)
    assert torch.equal(attend(layer, x), attend(layer, x))


@claiming("stochastic", False)
def test_training_is_evaluation_where_nothing_is_drawn(name):
    layer, x = build(name), draw(2, LONG)
    assert torch.equal(attend(layer, x), attend(layer.eval(), x))


@claiming("cross", False)
def test_a_foreign_context_that_is_not_claimed_is_refused(name):
    x = draw(2, LONG)
    with pytest.raises(Unsupported, match=f"{name} attends .*{claimants('cross')}"):
        build(name)(x, x.clone(), None)


@claiming("cross", True)
@pytest.mark.parametrize("n", [1, 40, 157])
def test_a_context_of_another_length_is_read_by_its_real_tokens(name, n):
    layer, x, context, keep = build(name).eval(), draw(3, n), draw(3, LONG), paddings()["middle"]
    tokens = layer(x, context, keep).tokens
    loud = torch.where(keep[..., None], context, 1e4 * draw(3, LONG))
    same(layer(x, loud, keep).tokens, tokens)
    for b in range(3):
        alone = layer(x[b : b + 1], context[b, keep[b]][None], None).tokens[0]
        same(tokens[b], alone)
    assert (layer(x, context.flip(0), keep).tokens - tokens).abs().max() > 1e-6


@every_form
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_a_compiled_layer_is_the_eager_one(monkeypatch, name, causal, padded):
    # The compiler cannot see through the checking of shapes, which no user has.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    layer, x = build(name, causal), draw(3, LONG)
    keep = paddings()["middle"] if padded else None
    torch.compiler.reset()
    runs = []
    for run in (layer, torch.compile(layer, backend="aot_eager", fullgraph=True)):
        torch.manual_seed(2)
        attended = run(x, x, keep)
        gradients = torch.autograd.grad(loss(attended, keep), list(layer.parameters()))
        runs.append([attended.tokens, *attended.losses.values(), *gradients])
    for one, other in zip(*runs, strict=True):
        same(one, other)
