"""Every variant trains a step on every form of input, and every task with two variants."""

import math
from functools import cache, cached_property
from itertools import product
from types import MappingProxyType

import pytest
import torch

from harness.data import Data, data_of, restore
from harness.model import build_model
from harness.questions import question_of
from harness.train import Trainer
from tasks import names as task_names
from tasks.contract import SPLITS, Split
from tasks.data.sources import ImportedTask
from tasks.lra.pathfinder import Pathfinder
from tests.harness.conftest import requested
from zoo.contract import Unsupported
from zoo.variants import variants


class RandomData(Data):
    """The data of a task; random tokens of its form where they take files or a compiler."""

    digests = MappingProxyType({})

    @cached_property
    def splits(self):
        task = self.task
        # numba compiles the kernels of Pathfinder for ten seconds.
        if not isinstance(task, ImportedTask | Pathfinder):
            return {"train": task.load("train")}
        if task.channels:
            sequences = torch.randn(16, task.max_len, task.channels)
        else:
            sequences = torch.randint(task.vocabulary, (16, task.max_len)).short()
        lengths = torch.randint(1, task.max_len + 1, (16,)).int()
        ids = torch.randint(16, (16, task.sequences)).int()
        targets = torch.randint(task.classes, (16,))
        return dict.fromkeys(SPLITS, Split(sequences, lengths, ids, targets, padded=True))


@cache
def data(name: str) -> Data:
    return RandomData(data_of(question_of(name, "smoke").task).task)


TASKS = [
    name
    for name in task_names(required_options=False)
    if not name.startswith("uea-") or name == "uea-handwriting"
]
"""Of the time series one set: they differ in their sizes only."""

FORMS = ("listops", "mqar")
"""Tasks with padding, and causal with target positions: a variant sees no other difference between
tasks. Pairs of sequences and channels are of the model around it."""

CHECKED = [name for name, variant in variants.items() if not variant.unchecked]


RUNS = dict.fromkeys(
    [*product(FORMS, CHECKED), *product(TASKS, ("softmax+primal", "gated-linear"))]
)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "attention"), RUNS)
def test_a_step_gives_finite_losses(task, attention, give, unread):
    give(data(task))
    spec = requested(attention, task)
    claims = [variants.find(name).traits for name in {*spec.layers}]
    if not all(restore(spec).task.causal in traits.forms for traits in claims):
        with pytest.raises(Unsupported, match=r"is (not causal|causal only)"):
            build_model(spec, restore(spec).task)
        return
    model = build_model(spec, restore(spec).task)
    trainer = Trainer(model, restore(spec).splits["train"], spec.train, 0)
    losses = trainer.step(0)
    assert losses.keys() == {"task", *(name for traits in claims for name in traits.losses)}
    assert all(math.isfinite(loss.item()) for loss in losses.values())
    assert all(weight.isfinite().all() for weight in trainer.model.parameters())
