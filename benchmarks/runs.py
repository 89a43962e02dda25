"""The training steps that benchmarks measure: plans and trainers of the harness."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.claims import Setting
from harness import trial
from harness.environment import pick_precision
from harness.plan import Plan, Request, Settings, resolve
from harness.records.fields import Precision
from harness.train import Trainer, autocast
from tasks.contract import Batch

FEW = {"train": 640, "dev": 32, "test": 32}
"""Examples of a generated task: a step does not depend on their number."""

LISTOPS: Settings = {"listops": FEW}
NONE: Settings = {}


def plan_of(
    setting: Setting,
    attention: str,
    task: str,
    recipe: str,
    precision: Precision,
    settings: Settings = NONE,
) -> Plan:
    """The plan of a run on the device; of recipe `smoke` where sizes are the smallest.

    `settings` are options by owner that differ from the recipe's; those of the task are not used
    where sizes are the smallest.

    Raises:
        UserError: the data are missing.
    """
    settings = {name: own for name, own in settings.items() if not (setting.tiny and name == task)}
    return resolve(
        Request(
            attention=attention, task=task, recipe="smoke" if setting.tiny else recipe, seed=0,
            device=setting.kind, precision=precision, compiled=setting.kind == "cuda",
            settings=settings,
        )
    )  # fmt: skip


def trainer_of(plan: Plan, setting: Setting, compiled: bool | None = None) -> Trainer:
    """A trainer of the plan's model; compiled as the plan says, unless given."""
    return trial.trainer_of(plan, plan.data.splits["train"].to(setting.device), compiled)


def plain_step(
    model: Any, plan: Plan, setting: Setting, next_batch: Callable[[], Batch]
) -> Callable[[], None]:
    """A step of AdamW around any model, in plain PyTorch, on the next batch."""
    spec = plan.spec.train
    recipe = spec.model_dump(include={"lr", "betas", "eps", "weight_decay"})
    optimizer = torch.optim.AdamW(model.parameters(), **recipe, fused=True)

    def step() -> None:
        batch = next_batch()
        with autocast(setting.device.type, spec.precision):
            scores, losses = model(batch)
        (F.cross_entropy(scores.float(), batch.targets) + losses["ksvd"]).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def first_batch(trainer: Trainer) -> Batch:
    """The first batch of training."""
    return trainer.train.gather(trainer.order.batch(0))


def fastest(setting: Setting) -> Precision:
    """The precision that `harness run` selects on the device."""
    return pick_precision("auto", setting.device)


def shape_of(plan: Plan) -> str:
    """Task, recipe, batch and length in words."""
    spec = plan.spec
    return f"{spec.task.name}, budget {spec.budget}: B={spec.train.batch} N={plan.task.max_len}"
