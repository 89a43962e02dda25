"""Every variant trains a step on every task, in the smallest budget."""

import math
from functools import cache

import pytest
import torch

from harness.budgets import Request, plan
from harness.data import find_task
from harness.model import build
from harness.train import Trainer
from tasks import names as task_names
from tasks.registry import tasks
from tasks.contract import Split
from tasks.data.sources import ImportedTask
from zoo.contract import Unsupported
from zoo.variants import variants


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    """A cache for the whole module: what is generated is generated once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_DATA", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(autouse=True)
def data_home():
    """Keeps the other tests' cache out."""


def spec_of(attention: str, task: str):
    return plan(
        Request(
            attention=attention, task=task, budget="smoke", seed=0, device="cpu",
            precision="fp32", compiled=False,
        )
    )  # fmt: skip


@cache
def examples(name: str) -> Split:
    """The task's own training split; random tokens of its form where it is made from files."""
    task = find_task(spec_of("none", name))
    if not isinstance(task, ImportedTask):
        return task.load("train")
    sequences = torch.randint(task.vocabulary, (16, task.max_len)).short()
    lengths = torch.randint(1, task.max_len + 1, (16,)).int()
    rows = torch.randint(16, (16, task.sequences)).int()
    return Split(sequences, lengths, rows, torch.randint(task.classes, (16,)), padded=True)


@pytest.mark.parametrize("attention", [*variants.names(), "softmax+primal"])
@pytest.mark.parametrize("task", task_names(required_options=False))
def test_a_step_of_every_variant_on_every_task_gives_finite_losses(task, attention):
    spec = spec_of(attention, task)
    parts = [variants.find(name).traits for name in attention.split("+")]
    if find_task(spec).causal and not all(traits.causal for traits in parts):
        with pytest.raises(Unsupported, match="is not causal"):
            build(spec, find_task(spec))
        return
    trainer = Trainer(build(spec, find_task(spec)), examples(task), spec.train, 0)
    losses = trainer.step(0)
    assert losses.keys() == {"task", *(name for traits in parts for name in traits.losses)}
    assert all(math.isfinite(loss.item()) for loss in losses.values())
    assert all(part.isfinite().all() for part in trainer.model.parameters())
