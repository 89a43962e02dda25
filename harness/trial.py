"""Models on real batches, whose training steps and inference are timed."""

import torch

from harness.model import build_model
from harness.plan import Plan
from harness.timing import Call
from harness.train import Trainer
from tasks.contract import Split

LEAST_STEPS = 110
"""Steps of the recipe of a timed model, at least: its schedule must not end while it is timed."""


def trainer_of(plan: Plan, train: Split, compiled: bool | None = None) -> Trainer:
    """A new model of `plan` on batches of the task's length; `compiled` replaces the recipe's."""
    spec = plan.spec
    torch.manual_seed(spec.seed)
    recipe = spec.train.model_copy(
        update={
            "compiled": spec.train.compiled if compiled is None else compiled,
            # A cost is of batches of the task's length.
            "bucket_by_length": False,
            # Nor does it depend on the number of steps of the run.
            "steps": max(spec.train.steps, LEAST_STEPS),
        }
    )
    model = build_model(spec, plan.task).to(train.targets.device)
    return Trainer(model, train, recipe, spec.seed)


def training_call(trainer: Trainer) -> Call:
    """One training step."""

    def call() -> None:
        trainer.model.train()
        trainer.step(0)

    return call


def inference_call(trainer: Trainer) -> Call:
    """The evaluation of one batch, without gradients."""
    batch = trainer.train.gather(trainer.order.batch(0))

    @torch.inference_mode()
    def call() -> None:
        trainer.model.eval()
        trainer.scores(batch)

    return call
