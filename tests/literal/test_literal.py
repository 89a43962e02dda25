"""The harness's model is the published one: in loss, in every gradient, and as freshly built."""

import pytest
import torch
from torch import nn

from harness.model import Classifier, build_model
from harness.records.spec import Question, RunSpec, TaskSpec
from tasks import Task
from tasks.contract import Batch
from tasks.lra.image import Image
from tasks.lra.retrieval import Retrieval
from tasks.lra.text import Text
from tests.harness.specs import encoder, recipe
from tests.literal.build import LiteralClassifier, build, translated
from zoo.composition import Composition

ATTENTIONS = ["primal", "softmax+primal"]
EXAMPLES = 3


def spec_of(task: Task, attention: str, dropout: float = 0.0, **options) -> RunSpec:
    composition = Composition.parse(attention)
    question = Question(
        name="literal", recipe="laptop",
        task=TaskSpec(name=task.name, key=task.key, options=task.options),
        model=encoder(dim=64, feed_forward=128, head=128, dropout=dropout),
        train=recipe(steps=1, warmup=0),
    )  # fmt: skip
    return RunSpec(
        question=question, attention=attention, layers=composition.layers(2),
        options=composition.changed({"primal": options}), device="cpu", seed=0, data={},
    )  # fmt: skip


def batch_of(task: Task, padding: str) -> Batch:
    shape = (EXAMPLES, task.sequences, task.max_len)
    tokens = torch.randint(task.vocabulary, shape)
    lengths = torch.randint(1, task.max_len + 1, shape[:2])
    masks = {
        "full": None,
        "ends": torch.arange(task.max_len) < lengths[..., None],
        "holes": torch.rand(shape) < 0.6,
    }
    targets = torch.arange(EXAMPLES) % task.classes
    return Batch(tokens, masks[padding], targets)


def pair(spec: RunSpec, task: Task) -> tuple[Classifier, LiteralClassifier]:
    ours, literal = build_model(spec, task).double(), build(spec, task).double()
    with torch.no_grad():
        for parameter in ours.parameters():
            # Nothing keeps the value that it starts from: a bias of 0, a weight of 1.
            parameter.add_(0.05 * torch.randn_like(parameter))
    literal.load_state_dict(translated(literal, ours.state_dict()))
    return ours, literal


def losses_and_gradients(model: nn.Module, batch: Batch) -> dict[str, tuple[float, dict]]:
    torch.manual_seed(5)
    scores, losses = model(batch)
    losses = {"task": nn.functional.cross_entropy(scores, batch.targets), **losses}
    parameters, results = dict(model.named_parameters()), {}
    options = {"retain_graph": True, "materialize_grads": True}
    # Each loss by itself: a large gradient of one would hide a wrong one of the other.
    for name, loss in losses.items():
        gradients = torch.autograd.grad(loss, list(parameters.values()), **options)
        results[name] = (loss.item(), dict(zip(parameters, gradients, strict=True)))
    return results


def assert_equal(ours: Classifier, literal: LiteralClassifier, batch: Batch) -> None:
    mine, other = losses_and_gradients(ours, batch), losses_and_gradients(literal, batch)
    assert mine.keys() == other.keys() == {"task", "ksvd"}
    for name, (loss, gradients) in mine.items():
        expected_loss, expected = other[name]
        assert loss == pytest.approx(expected_loss, rel=1e-10)
        gradients = translated(literal, gradients)
        assert gradients.keys() == expected.keys()
        largest = max(gradient.abs().max() for gradient in expected.values())
        for parameter, gradient in gradients.items():
            error = (gradient - expected[parameter]).abs().max()
            scale = max(expected[parameter].abs().max(), 1e-6 * largest)
            assert error <= 1e-9 * scale, (name, parameter)


TEXT, PAIRS = Text(max_len=40), Retrieval(max_len=40)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize(("task", "padding", "rank"), [
    (TEXT, "full", 7), (TEXT, "holes", 7), (Text(max_len=600), "ends", 7), (PAIRS, "full", 7),
    (PAIRS, "ends", 7), (TEXT, "ends", 30),  # every position is sampled
])  # fmt: skip
def test_losses_and_every_gradient_are_those_of_the_literal_model(attention, task, padding, rank):
    spec = spec_of(task, attention, rank=rank, rank_multi=4, eta=0.3)
    assert_equal(*pair(spec, task), batch_of(task, padding))


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_dropout_acts_at_the_published_places(attention):
    """With one seed both models drop the same entries, if dropout layers run in the same order."""
    spec = spec_of(TEXT, attention, dropout=0.5, rank=7, rank_multi=4, eta=0.3)
    ours, literal = pair(spec, TEXT)
    batch = batch_of(TEXT, "ends")
    assert_equal(ours, literal, batch)
    dropped = [module for module in literal.modules() if isinstance(module, nn.Dropout)]
    assert len(dropped) == 1 + 3 * spec.model.depth
    trained, exact = ours(batch)[0], ours.eval()(batch)[0]
    assert not torch.allclose(trained, exact)
    torch.testing.assert_close(exact, literal.eval()(batch)[0])


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_fresh_parameters_are_distributed_as_the_published_ones(attention):
    task = Image()
    spec = spec_of(task, attention, rank=30, rank_multi=10, eta=0.1)
    ours, literal = build_model(spec, task), build(spec, task)
    fresh = translated(literal, dict(ours.named_parameters()))
    for name, published in literal.named_parameters():
        mine = fresh[name]
        assert mine.shape == published.shape, name
        # Few entries make a norm vary more from draw to draw.
        assert mine.norm().item() == pytest.approx(
            published.norm().item(), rel=0.05 if mine.numel() >= 1000 else 0.5
        ), name
        assert mine.abs().max().item() == pytest.approx(published.abs().max().item(), rel=0.5), name
