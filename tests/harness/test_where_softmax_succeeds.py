"""What a synthetic task says of a variant counts only at a setting that softmax can learn.

The published records show that the `laptop` recipes are such settings.
"""

from pathlib import Path

import pytest

from harness.budgets import Request, plan
from harness.records.store import Store
from tasks import tasks
from tasks.synthetic.base import SyntheticTask

ROOT = Path(__file__).parent.parent.parent
SYNTHETIC = [name for name in tasks.names() if issubclass(tasks.find(name), SyntheticTask)]
NOT_LEARNED = {"scaling": "its answers have nothing to do with its tokens"}


@pytest.fixture(scope="module")
def published():
    found, _ = Store(ROOT / "results").read()
    return {record.spec.id: record for record in found}


@pytest.mark.parametrize("name", sorted(set(SYNTHETIC) - set(NOT_LEARNED)))
def test_softmax_succeeds_with_the_laptop_recipe(name, published):
    spec = plan(
        Request(
            attention="softmax", task=name, budget="laptop", seed=0, device="cpu",
            precision="fp32", compiled=False,
        )
    )  # fmt: skip
    assert spec.id in published, (
        f"run: harness run --attention softmax --task {name} --device cpu --precision fp32 "
        "--store results"
    )
    record = published[spec.id]
    assert record.status == "ok"
    assert record.final.test_accuracy > 0.95
