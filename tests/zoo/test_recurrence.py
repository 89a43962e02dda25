"""Token after token: generation, gradients, precision, and what refuses to step."""

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

from tests.zoo.oracle import projections_alone_are_halved
from zoo.contract import Attention, Size, Unsupported, claimants, state_bytes
from zoo.variants import variants
from zoo.variants.linear import Linear
from zoo.variants.local import Local
from zoo.variants.performer import Performer
from zoo.variants.softmax import Softmax

DIM, HEADS = 16, 2
RECURRENT = [name for name, found in variants.items() if found.traits.recurrent]
every_recurrence = pytest.mark.parametrize("name", RECURRENT)


def size(causal: bool = True, max_len: int = 200) -> Size:
    return Size(dim=DIM, heads=HEADS, max_len=max_len, causal=causal, dropout=0.5)


def build(name: str, max_len: int = 200) -> Attention:
    return variants.find(name)(size(max_len=max_len)).double().eval()


def steps(layer: Attention, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The outputs of all steps, and the state behind the last."""
    state, found = layer.start(len(x)), []
    for token in x.unbind(1):
        out, state = layer.step(token, state)
        found.append(out)
    return torch.stack(found, 1), state


class Generator(nn.Module):
    """Two pre-norm layers round a variant, and the score of every next token."""

    def __init__(self, name: str, vocabulary: int = 50) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, DIM)
        self.layers = nn.ModuleList(build(name) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(2))
        self.forwards = nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(2))
        self.head = nn.Linear(DIM, vocabulary)

    def scores(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens)
        for layer, norm, forward in zip(self.layers, self.norms, self.forwards, strict=True):
            normed = norm(x)
            x = x + layer(normed, normed, None).tokens
            x = x + forward(x).relu()
        return self.head(x)

    def start(self, batch: int) -> list:
        return [layer.start(batch) for layer in self.layers]

    def step(self, token: Tensor, states: list) -> tuple[Tensor, list]:
        x, after = self.token(token), []
        parts = zip(self.layers, self.norms, self.forwards, states, strict=True)
        for layer, norm, forward, state in parts:
            out, state = layer.step(norm(x), state)
            x = x + out
            x = x + forward(x).relu()
            after.append(state)
        return self.head(x), after


@every_recurrence
def test_generation_is_that_of_the_parallel_form_on_the_growing_prefix(name):
    model, prompt = Generator(name).double().eval(), torch.randint(50, (3, 9))
    states, stepped, scores = model.start(3), list(prompt.unbind(1)), []
    for i in range(49):
        found, states = model.step(stepped[i], states)
        scores.append(found)
        if i >= 8:
            stepped.append(found.argmax(-1))
    whole = prompt
    for _ in range(40):
        latest = model.scores(whole)[:, -1].argmax(-1, keepdim=True)
        whole = torch.cat([whole, latest], 1)
    assert torch.equal(torch.stack(stepped, 1)[:, :49], whole)
    torch.testing.assert_close(torch.stack(scores, 1), model.scores(whole))
    assert len(whole[:, 9:].unique()) > 3


@every_recurrence
def test_gradients_flow_through_the_steps_as_through_the_forward(name):
    layer, x = build(name), torch.randn(2, 140, DIM).double().requires_grad_()
    ramp = torch.linspace(-1, 1, x.numel()).double().reshape(x.shape)
    given = [x, *layer.parameters()]
    runs = [
        torch.autograd.grad((out * ramp).sum(), given, materialize_grads=True)
        for out in (steps(layer, x)[0], layer(x, x, None).tokens)
    ]
    for one, other in zip(*runs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@every_recurrence
def test_a_thousand_steps_in_fp32_stay_near_the_exact_forward(name):
    layer, x = build(name, max_len=1000), torch.randn(2, 1000, DIM).double()
    with torch.no_grad():
        expected = layer(x, x, None).tokens
        out, _ = steps(layer.float(), x.float())
    assert out.dtype == torch.float32
    assert (out - expected).norm() / expected.norm() < 1e-5


@every_recurrence
@pytest.mark.parametrize("autocast", [False, True], ids=["bf16", "autocast"])
def test_half_precision_carries_its_sums_in_fp32_and_stays_near(name, autocast):
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


@every_recurrence
def test_one_compiled_step_serves_every_position(monkeypatch, name):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    layer, x = build(name), torch.randn(2, 6, DIM).double()
    torch.compiler.reset()
    compiled = torch.compile(layer.step, fullgraph=True, backend="aot_eager", dynamic=False)
    state, found = layer.start(2), []
    with torch.no_grad():
        out, state = compiled(x[:, 0], state)
        found.append(out)
        with torch.compiler.set_stance("fail_on_recompile"):
            for token in x[:, 1:].unbind(1):
                out, state = compiled(token, state)
                found.append(out)
        torch.testing.assert_close(torch.stack(found, 1), layer(x, x, None).tokens)


@every_recurrence
def test_a_step_is_that_of_evaluation_whatever_the_mode(name):
    layer, x = build(name), torch.randn(2, 20, DIM).double()
    expected, _ = steps(layer, x)
    assert torch.equal(steps(layer.train(), x)[0], expected)


def test_a_step_takes_the_features_that_evaluation_has_where_training_redraws_them():
    layer, x = Performer(size(), redraw=True).double(), torch.randn(2, 20, DIM).double()
    stepped, _ = steps(layer, x)
    torch.testing.assert_close(stepped, layer.eval()(x, x, None).tokens)


@pytest.mark.parametrize("window", [1, 7, 5000])
def test_a_window_of_any_width_is_carried_whole_and_no_wider_than_the_tokens(window):
    layer, x = Local(size(), window=window).double().eval(), torch.randn(2, 30, DIM).double()
    stepped, state = steps(layer, x)
    torch.testing.assert_close(stepped, layer(x, x, None).tokens)
    chunk_states = [part.shape for part in state if part.ndim == 4]
    assert chunk_states == 2 * [(2, HEADS, min(window + 1, 200), DIM // HEADS)]


def test_bytes_of_a_state_are_those_of_its_numbers():
    state = torch.zeros(3, 5), torch.zeros(3, dtype=torch.int64)
    assert state_bytes(state) == 3 * 5 * 4 + 3 * 8
    assert state_bytes(Linear(size()).start(6)) == 2 * state_bytes(Linear(size()).start(3))


def test_what_is_not_recurrent_refuses_to_step_and_names_what_is():
    layer, state = Softmax(size()), (torch.zeros(2, dtype=torch.int64),)
    message = f"softmax is not recurrent; recurrent variants: {claimants('recurrent')}"
    for call in (lambda: layer.start(2), lambda: layer.step(torch.zeros(2, DIM), state)):
        with pytest.raises(Unsupported, match=message):
            call()


@every_recurrence
def test_a_layer_that_sees_the_future_refuses_to_step(name):
    layer = variants.find(name)(size(causal=False))
    with pytest.raises(Unsupported, match=f"{name} steps in its causal form only; build it causal"):
        layer.start(2)


@every_recurrence
def test_under_autocast_a_step_mixes_heads_in_single_precision(name):
    layer = build(name).float()
    state, token = layer.start(3), torch.randn(3, DIM)
    projections_alone_are_halved(lambda: layer.step(token, state))
