"""In a fresh model of the published Image runs the KSVD loss does not dominate the task's.

Each statistic is also taken with orthonormal columns head by head, which it must reject: a model
that starts so does not learn in a short run.
"""

from typing import NamedTuple

import pytest
import torch
from torch import nn

from harness.classifier import Classifier
from tasks.contract import Batch
from tasks.lra.image import Image
from tests.literal.test_literal import ATTENTIONS, built, spec_of
from tests.zoo.primal_oracle import make_columns_orthonormal
from zoo.variants.primal import Primal

RATIO = 10
"""The largest ratio of the gradient of the KSVD loss to that of the task's loss in a module."""


class Start(NamedTuple):
    """The first step: eta J^2, and the ratio of gradients in each module that both losses reach."""

    ksvd: float
    ratios: dict[str, float]


def fresh(attention: str) -> Classifier:
    return built(spec_of(IMAGE, attention, rank=30, eta=0.1), IMAGE)


def with_orthonormal_columns(model: Classifier) -> Classifier:
    for module in model.modules():
        if isinstance(module, Primal):
            make_columns_orthonormal(module)
    return model


def first_step(model: Classifier) -> Start:
    batch = Batch(torch.randint(256, (8, 1, 1024)), None, torch.randint(10, (8,)))
    scores, losses = model(batch)
    task = nn.functional.cross_entropy(scores, batch.targets)
    by_task, by_ksvd = norms_of_gradients(model, task), norms_of_gradients(model, losses["ksvd"])
    ratios = {name: by_ksvd[name] / norm for name, norm in by_task.items() if by_ksvd[name] > 0}
    return Start(losses["ksvd"].item(), ratios)


def norms_of_gradients(model: Classifier, loss: torch.Tensor) -> dict[str, float]:
    """The norm of the loss's gradient in each module that has parameters of its own."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
    squares: dict[str, float] = {}
    for name, gradient in zip(names, gradients, strict=True):
        module = name.rpartition(".")[0]
        squares[module] = squares.get(module, 0.0) + gradient.square().sum().item()
    return {module: square**0.5 for module, square in squares.items()}


IMAGE = Image()


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_the_gradient_of_the_ksvd_loss_does_not_dominate_any_module(attention):
    published = first_step(fresh(attention))
    assert published.ksvd < 0.05
    # Everything from the embedding to the last layer's projections of queries and keys.
    assert len(published.ratios) >= 11
    assert max(published.ratios.values()) < RATIO
    columns = first_step(with_orthonormal_columns(fresh(attention)))
    assert columns.ksvd > 1
    assert max(columns.ratios.values()) > RATIO


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_embeddings_start_with_a_deviation_of_a_fiftieth(attention):
    model = fresh(attention)
    for embedding in (model.token, model.position):
        assert embedding.weight.std().item() == pytest.approx(0.02, rel=0.03)
        assert embedding.weight.mean().item() == pytest.approx(0, abs=5e-4)
