"""Steps of recurrent variants: gradients, precision, compilation, and errors."""

import jaxtyping
import pytest
import torch
from torch import Tensor

from tests.zoo.oracle import projections_alone_are_halved
from zoo.contract import Attention, Size, Unsupported, names_with
from zoo.variants import variants
from zoo.variants.local import Local
from zoo.variants.performer import Performer
from zoo.variants.softmax import Softmax

DIM, HEADS = 16, 2
RECURRENT = [name for name, variant in variants.items() if variant.traits.recurrent]
every_recurrence = pytest.mark.parametrize("name", RECURRENT)


def size(causal: bool = True, max_len: int = 200) -> Size:
    return Size(dim=DIM, heads=HEADS, max_len=max_len, causal=causal, dropout=0.5)


def build(name: str, max_len: int = 200) -> Attention:
    return variants.find(name)(size(max_len=max_len)).double().eval()


def steps(layer: Attention, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The outputs of all steps, and the state after the last."""
    state, outputs = layer.start(len(x)), []
    for token in x.unbind(1):
        out, state = layer.step(token, state)
        outputs.append(out)
    return torch.stack(outputs, 1), state


@every_recurrence
def test_gradients_of_the_steps_are_those_of_the_forward(name):
    layer, x = build(name), torch.randn(2, 140, DIM).double().requires_grad_()
    ramp = torch.linspace(-1, 1, x.numel()).double().reshape(x.shape)
    given = [x, *layer.parameters()]
    runs = [
        torch.autograd.grad((out * ramp).sum(), given, materialize_grads=True)
        for out in (steps(layer, x)[0], layer(x, x, None).tokens)
    ]
    for one, other in zip(*runs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@every_recurrence
def test_a_thousand_steps_in_fp32_are_close_to_the_exact_forward(name):
    layer, x = build(name, max_len=1000), torch.randn(2, 1000, DIM).double()
    with torch.no_grad():
        expected = layer(x, x, None).tokens
        out, _ = steps(layer.float(), x.float())
    assert out.dtype == torch.float32
    assert (out - expected).norm() / expected.norm() < 1e-5


@every_recurrence
@pytest.mark.parametrize("autocast", [False, True], ids=["bf16", "autocast"])
def test_in_half_precision_the_state_is_fp32_and_the_output_is_close(name, autocast):
    layer, x = build(name), torch.randn(2, 150, DIM).double()
    expected = layer(x, x, None).tokens
    dtype = torch.float32 if autocast else torch.bfloat16
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        layer, x = layer.to(dtype), x.to(dtype)
        out, state = steps(layer, x)
        parallel = layer(x, x, None).tokens
    assert (out.double() - expected).norm() / expected.norm() < 0.05
    assert out.dtype == parallel.dtype
    assert {part.dtype for part in state} <= {torch.float32, torch.int64}


@pytest.mark.slow
@every_recurrence
def test_a_compiled_step_is_not_recompiled(monkeypatch, name):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    layer, x = build(name), torch.randn(2, 6, DIM).double()
    torch.compiler.reset()
    compiled = torch.compile(layer.step, fullgraph=True, backend="aot_eager", dynamic=False)
    state, outputs = layer.start(2), []
    with torch.no_grad():
        out, state = compiled(x[:, 0], state)
        outputs.append(out)
        with torch.compiler.set_stance("fail_on_recompile"):
            for token in x[:, 1:].unbind(1):
                out, state = compiled(token, state)
                outputs.append(out)
        torch.testing.assert_close(torch.stack(outputs, 1), layer(x, x, None).tokens)


@every_recurrence
def test_a_step_is_the_same_in_training_and_evaluation(name):
    layer, x = build(name), torch.randn(2, 20, DIM).double()
    expected, _ = steps(layer, x)
    assert torch.equal(steps(layer.train(), x)[0], expected)


def test_a_step_uses_the_features_of_evaluation_where_training_redraws_them():
    layer, x = Performer(size(), redraw=True).double(), torch.randn(2, 20, DIM).double()
    stepped, _ = steps(layer, x)
    torch.testing.assert_close(stepped, layer.eval()(x, x, None).tokens)


@pytest.mark.parametrize("window", [1, 7, 5000])
def test_the_state_of_a_window_is_no_wider_than_the_tokens(window):
    layer, x = Local(size(), window=window).double().eval(), torch.randn(2, 30, DIM).double()
    stepped, state = steps(layer, x)
    torch.testing.assert_close(stepped, layer(x, x, None).tokens)
    shapes = [part.shape for part in state if part.ndim == 4]
    assert shapes == 2 * [(2, HEADS, min(window + 1, 200), DIM // HEADS)]


def test_a_variant_without_recurrence_names_those_that_have_it():
    layer, state = Softmax(size()), (torch.zeros(2, dtype=torch.int64),)
    message = f"softmax is not recurrent; recurrent variants: {names_with('recurrent')}"
    for call in (lambda: layer.start(2), lambda: layer.step(torch.zeros(2, DIM), state)):
        with pytest.raises(Unsupported, match=message):
            call()


@every_recurrence
def test_a_layer_that_is_not_causal_has_no_steps(name):
    layer = variants.find(name)(size(causal=False))
    with pytest.raises(Unsupported, match=f"{name} is recurrent only if causal; give causal=True"):
        layer.start(2)


@every_recurrence
def test_under_autocast_only_the_projections_of_a_step_run_in_half_precision(name):
    layer = build(name).float()
    state, token = layer.start(3), torch.randn(3, DIM)
    projections_alone_are_halved(lambda: layer.step(token, state))
