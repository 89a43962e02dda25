"""The training step of the harness compared with plain PyTorch loops, on laptop ListOps."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.alternating import AlternatingTimes
from benchmarks.claims import Claim, Finding, Setting
from benchmarks.workloads import FEW, fastest, plain_step, plan_of, shape_of, trainer_of
from harness.plan import Plan
from tasks.contract import Batch
from tests.literal.build import build

CLAIMS = [
    Claim(
        name="harness-loop",
        what="Time of a training step of the harness over that of a plain loop around the same "
        "model, which has its batch already",
        bounds={"cpu": 1.03, "cuda": 1.03},
        limit="1 where both run eagerly: the model is the same.",
    ),
    Claim(
        name="harness-eager",
        what="Time of a training step of the harness over that of an eager loop around the literal "
        "model, with a DataLoader",
        bounds={"cpu": None, "cuda": 0.2},
        limit="See step-none-fp32 for the rest of the model.",
    ),
]


def measure(setting: Setting) -> Iterator[Finding]:
    """See `CLAIMS`."""
    plan = plan_of(setting, "primal", "listops", "laptop", fastest(setting), {"listops": FEW})
    trainer = trainer_of(plan, setting)
    calls = {
        "harness": lambda: trainer.step(0),
        "plain loop": plain_loop(plan, setting),
        "eager loop": eager_loop(plan, setting),
    }
    shape = f"{shape_of(plan)}, {plan.spec.train.precision}"
    times = AlternatingTimes(calls, setting, rounds=31)
    yield times.finding("harness-loop", "harness", "plain loop", shape)
    yield times.finding("harness-eager", "harness", "eager loop", shape)


def plain_loop(plan: Plan, setting: Setting) -> Callable[[], Any]:
    """A step around the model of the harness, on a batch that is gathered before."""
    trainer = trainer_of(plan, setting, compiled=False)
    batch = trainer.train.gather(trainer.order.batch(0))
    return plain_step(trainer.model, plan, setting, lambda: batch)


def eager_loop(plan: Plan, setting: Setting) -> Callable[[], Any]:
    """A step around the literal model, on the next batch of a DataLoader."""
    train = plan.data.splits["train"]
    whole = train.gather(torch.arange(len(train)))
    mask = torch.ones_like(whole.tokens, dtype=torch.bool) if whole.mask is None else whole.mask
    data = TensorDataset(whole.tokens, mask, whole.targets)
    loader = DataLoader(data, batch_size=plan.spec.train.batch, shuffle=True, drop_last=True)

    def batches() -> Iterator[Batch]:
        while True:
            for parts in loader:
                yield Batch(*(part.to(setting.device) for part in parts))

    stream = batches()
    model = build(plan.spec, plan.task).to(setting.device)
    return plain_step(model, plan, setting, lambda: next(stream))
