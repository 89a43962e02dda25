"""The classifier around a variant: its formula, what its logits depend on, and recomputation."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from harness.data import restore
from harness.model import Classifier, build_model, masked_mean
from tasks.contract import Batch
from tests.harness.conftest import requested
from tests.harness.specs import encoder
from zoo import create
from zoo.contract import Attended, Attention
from zoo.registry import UserError
from zoo.variants import variants

VOCABULARY, CLASSES, LENGTH = 11, 3, 20


def layer(name: str) -> Attention:
    causal = variants.find(name).traits.forms[0]
    return create(name, dim=16, heads=2, max_len=LENGTH, causal=causal)


def classifier(*layers: Attention, sequences: int = 1, **fields) -> Classifier:
    return Classifier(
        layers, encoder(**{"head": 12, **fields}), vocabulary=VOCABULARY, classes=CLASSES,
        sequences=sequences,
    )  # fmt: skip


def decoder() -> Classifier:
    return classifier(layer("none"), pooling="decode")


def draw(lengths: list[list[int]] | None, count: int = 3, sequences: int = 1) -> Batch:
    tokens = torch.randint(VOCABULARY, (count, sequences, LENGTH))
    mask = None if lengths is None else torch.arange(LENGTH) < torch.tensor(lengths)[..., None]
    return Batch(tokens, mask, torch.randint(CLASSES, (count,)))


def logits(model: Classifier, batch: Batch) -> torch.Tensor:
    torch.manual_seed(5)
    return model(batch)[0]


def changed(model: Classifier, batch: Batch, tokens: torch.Tensor) -> torch.Tensor:
    other = logits(model, replace(batch, tokens=tokens))
    return (other - logits(model, batch)).abs().amax(-1) > 1e-6


RAGGED = [[LENGTH, 3], [1, LENGTH - 1], [7, 12]]


def test_the_mean_excludes_padding_and_that_of_no_tokens_is_zero():
    tokens = torch.randn(4, 4, 5)
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]]).bool()
    tokens[1, 1:], tokens[3] = torch.nan, torch.inf
    pooled = masked_mean(tokens, mask)
    torch.testing.assert_close(pooled[0], tokens[0].sum(0) / 4)
    torch.testing.assert_close(pooled[1], tokens[1, 0])
    torch.testing.assert_close(pooled[2], (tokens[2, 1] + tokens[2, 3]) / 2)
    assert torch.equal(pooled[3], torch.zeros(5))


def test_the_two_sequences_of_an_example_are_encoded_independently():
    model = classifier(layer("softmax"), sequences=2).eval()
    batch = draw(RAGGED, sequences=2)
    u, v = (
        masked_mean(model.encode(batch.tokens[:, i], batch.mask[:, i])[0], batch.mask[:, i])
        for i in (0, 1)
    )
    expected = model.head(torch.cat([u, v, u * v, u - v], 1))
    torch.testing.assert_close(logits(model, batch), expected)


@pytest.mark.parametrize("head", [12, 0])
def test_the_model_is_embeddings_then_layers_then_norm_mean_and_head(head):
    model, batch = (
        classifier(layer("softmax"), layer("softmax"), dropout=0.5, head=head),
        draw(None),
    )
    assert [block.dropout.p for block in model.layers] == [0.5, 0.5]
    # Dropout is applied to the embedding, too.
    for dropout in (1.0, 0.0):
        model.layers.eval()
        model.dropout.p = dropout
        x = (1 - dropout) * (model.token.weight[batch.tokens[:, 0]] + model.position.weight)
        for block in model.layers:
            x = block(x).tokens
        expected = model.norm(x).mean(1)
        if head:
            expected = functional.relu(model.head[0](expected))
        last = model.head[2] if head else model.head
        torch.testing.assert_close(logits(model, batch), last(expected))


def test_an_auxiliary_loss_is_averaged_over_the_layers_that_return_it(monkeypatch):
    layers = [layer("softmax") for _ in range(3)]
    for of, losses in zip(layers, ({}, {"a": 1.0, "b": 4.0}, {"a": 3.0}), strict=True):
        found = {name: torch.tensor(value) for name, value in losses.items()}
        monkeypatch.setattr(of, "forward", lambda x, *_, found=found: Attended(x, found))
    _, losses = classifier(*layers)(draw(None))
    assert {name: loss.item() for name, loss in losses.items()} == {"a": 2.0, "b": 4.0}


def test_a_short_input_gets_the_first_positions_and_a_long_one_is_an_error():
    model = classifier(layer("softmax")).eval()
    tokens = torch.randint(VOCABULARY, (2, 5))
    padded = nn.functional.pad(tokens, (0, LENGTH - 5))
    mask = (torch.arange(LENGTH) < 5).expand(2, LENGTH)
    short, long = model.encode(tokens, None)[0], model.encode(padded, mask)[0]
    torch.testing.assert_close(short, long[:, :5])
    with pytest.raises(RuntimeError, match="size of tensor"):
        model.encode(torch.zeros(2, LENGTH + 1, dtype=torch.int64), None)


def test_the_model_of_a_run_has_the_sizes_and_variants_of_its_specification(tiny):
    model = {"attention_dropout": 0.25, "embedding_std": 1.0}
    settings = {"model": model, "primal": {"rank": 7}}
    spec = tiny("softmax+primal", settings=settings)
    task = restore(spec).task
    model = build_model(spec, task)
    assert [type(layer.attention).name() for layer in model.layers] == ["softmax", "primal"]
    assert model.layers[1].attention.scales.shape == (2, 7)
    assert model.token.weight.shape == (task.vocabulary, 64) and model.head[-1].out_features == 10
    assert model.position.weight.shape == (24, 64)
    assert model.position.weight.std().item() == pytest.approx(1.0, rel=0.1)
    assert model.layers[0].feed_forward[0].out_features == 128
    assert [module.dropout.p for module in (model, *model.layers)] == [0.1] * 3
    assert {layer.attention.size.dropout for layer in model.layers} == {0.25}


def test_a_decoder_gives_several_answers_from_one_vector_and_their_numbers():
    model = decoder().eval()
    batch = replace(draw(None), target_positions=torch.full((3, 4), LENGTH - 1))
    before = logits(model, batch)
    assert len({tuple(row) for row in before[0].round(decimals=4).tolist()}) == 4
    # Without attention each answer depends only on the last token.
    other = batch.tokens.clone()
    other[0, 0, -1] = (other[0, 0, -1] + 1) % VOCABULARY
    other[1, 0, :-1] = (other[1, 0, :-1] + 1) % VOCABULARY
    assert changed(model, batch, other).tolist() == [[True] * 4, [False] * 4, [False] * 4]
    # Where positions differ, so do the vectors.
    at = torch.tensor([[0, 1, 2, LENGTH - 1]]).expand(3, 4)
    assert torch.equal(logits(model, replace(batch, target_positions=at))[:, 3], before[:, 3])


def test_a_decoder_has_two_hidden_layers_on_the_sum_of_a_vector_and_a_sinusoid():
    head = decoder().head
    x, i = torch.randn(2, 5, 16), torch.arange(5.0)
    waves = [wave(i / 10_000 ** (2 * j / 16)) for wave in (torch.sin, torch.cos) for j in range(8)]
    expected = x + torch.stack(waves, 1)
    for place in (0, 3):
        expected = functional.gelu(head[place + 1](head[place](expected)))
    torch.testing.assert_close(head(x), head[7](head[6](expected)))
    with pytest.raises(UserError, match="pooling=decode needs outputs at target positions"):
        decoder()(draw(None))


def built(task: str, positions: str = "", **options) -> tuple[Classifier, Batch]:
    spec = requested("softmax", task, positions=positions, **{task: options})
    data = restore(spec)
    return build_model(spec, data.task).eval(), data.splits["dev"].gather(torch.arange(3))


@pytest.mark.parametrize("causal", [True, False])
def test_a_model_is_causal_if_its_task_is(causal):
    model, batch = built("copying", causal=causal)
    first = replace(batch, target_positions=torch.zeros(3, 1, dtype=torch.int64))
    last = batch.tokens.clone()
    last[..., -1] = 0
    assert changed(model, first, last).any() == (not causal)


@pytest.mark.parametrize("positions", ["learned", "rotary", "none"])
def test_without_positions_a_bidirectional_model_ignores_the_order(positions):
    model, batch = built("majority", positions)
    learned = [name for name, _ in model.named_parameters() if name.startswith("position")]
    assert bool(learned) == (positions == "learned")
    assert changed(model, batch, batch.tokens.flip(-1)).any() == (positions != "none")


def test_the_inputs_of_a_task_choose_its_model(tiny, monkeypatch):
    spec = tiny()
    assert isinstance(build_model(spec, restore(spec).task), Classifier)
    monkeypatch.setattr(type(restore(spec).task), "inputs", "pages")
    with pytest.raises(UserError, match=r"listops@.*: there is no model of pages; use another"):
        tiny()


@pytest.mark.parametrize("recompute", ["attention", "layer"])
def test_recomputation_changes_no_bit_and_evaluation_recomputes_nothing(recompute):
    found, calls = [], []
    for how in ("none", recompute):
        torch.manual_seed(3)
        layers = [create("softmax", dim=16, heads=2, max_len=LENGTH, dropout=0.2), layer("primal")]
        model = classifier(*layers, dropout=0.3, recompute=how)
        outputs, losses = model(draw([[LENGTH], [7], [3]]))
        total = outputs.square().sum() + sum(losses.values())
        found.append([total, *torch.autograd.grad(total, [*model.parameters()]), torch.rand(1)])
    assert all(map(torch.equal, *found))
    layers[0].register_forward_pre_hook(lambda *_: calls.append(1))
    for training, count in ((False, 1), (True, 3)):
        model.train(training)(draw(None))[0].sum().backward()
        assert len(calls) == count
