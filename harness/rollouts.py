"""Rollouts of a trained model in the environment of its task."""

import torch
from jaxtyping import Float
from torch import Tensor

from harness.records.returns import EpisodeReturns
from harness.train import Trainer
from tasks.contract import Batch, Split
from tasks.control.rollouts import TrajectoryTask, Windows


def roll_out(trainer: Trainer, task: TrajectoryTask, test: Split) -> EpisodeReturns:
    """The return of each test episode whose actions are those of the trainer's model."""
    trainer.model.eval()

    @torch.inference_mode()
    def act(windows: Windows, count: int) -> Float[Tensor, "e a"]:
        windows = windows.to(trainer.device)
        mask = torch.arange(windows.shape[1], device=trainer.device) < count
        batch = Batch(
            windows[:, None], mask.expand(windows.shape[:2])[:, None], windows[..., -task.classes :]
        )
        return trainer.scores(batch)[:, count - 1].float().cpu()

    reference = task.references()
    return EpisodeReturns(
        returns=tuple(task.returns(act, test)),
        random=reference.random,
        expert=reference.expert,
    )
