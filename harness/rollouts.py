"""Rollouts of a trained model in the environment of its task."""

import torch
from jaxtyping import Float
from torch import Tensor

from harness.records.answers import ClusterValues
from harness.train import Trainer
from tasks.contract import Batch, Split
from tasks.control.rollouts import TrajectoryTask, Windows


def roll_out(trainer: Trainer, task: TrajectoryTask, test: Split) -> ClusterValues:
    """The normalised return of each test episode whose actions are those of the trainer's model."""
    trainer.model.eval()

    @torch.inference_mode()
    def act(windows: Windows, count: int) -> Float[Tensor, "e a"]:
        windows = windows.to(trainer.device)
        mask = torch.arange(windows.shape[1], device=trainer.device) < count
        batch = Batch(
            windows[:, None], mask.expand(windows.shape[:2])[:, None], windows[..., -task.classes :]
        )
        return trainer.scores(batch)[:, count - 1].float().cpu()

    returns = [task.references().normalised(one) for one in task.returns(act, test)]
    return ClusterValues(sizes=(1,) * len(returns), sums=tuple(returns))
