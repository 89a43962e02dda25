"""The predictions of a test split by cluster, for records; returns of rollouts."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from harness.records.answers import ClusterValues, CorrectAnswers
from harness.train import Trainer
from tasks.contract import Batch, Split
from tasks.control.control import Control
from tasks.control.windows import Windows


def by_cluster(values: Shaped[Tensor, "n ..."], split: Split) -> CorrectAnswers | ClusterValues:
    if values.dtype == torch.bool:
        return _bits(values, split)
    _, clusters = clusters_of(split).unique(return_inverse=True)
    counted = split.answers.counted(split.targets)
    sizes, sums = (
        clusters.bincount(of_examples.cpu().double().flatten(1).sum(1)).tolist()
        for of_examples in (counted, values)
    )
    return ClusterValues(sizes=tuple(map(round, sizes)), sums=tuple(sums))


def _bits(correct: Shaped[Tensor, "n ..."], split: Split) -> CorrectAnswers:
    clusters, counted = clusters_of(split), split.answers.counted(split.targets).cpu()
    of_example = counted.long().flatten(1).sum(1) if counted.dim() > 1 else counted.long()
    answers = clusters.bincount(of_example.double()).long()
    # Stable sorts: by the cluster's number of answers, then by cluster, then by example.
    order = clusters.argsort(stable=True)
    order = order[answers[clusters][order].argsort(stable=True)]
    sizes = answers[clusters[order].unique_consecutive()]
    return CorrectAnswers.pack(correct.cpu()[order][counted[order]].tolist(), sizes.tolist())


def clusters_of(split: Split) -> Int[Tensor, " n"]:
    # A document of Retrieval is in many examples; the other sequence of an example is ignored.
    if split.clusters is not None:
        return split.clusters.cpu().long()
    ids = split.sequence_ids.cpu().long()
    uses = ids.flatten().bincount()[ids]
    return ids.gather(1, uses.argmax(1, keepdim=True))[:, 0]


def roll_out(trainer: Trainer, task: Control, test: Split) -> ClusterValues:
    trainer.model.eval()

    @torch.inference_mode()
    def act(windows: Windows, count: int) -> Float[Tensor, "e a"]:
        windows = windows.to(trainer.device)
        mask = torch.arange(windows.shape[1], device=trainer.device) < count
        batch = Batch(
            windows[:, None], mask.expand(windows.shape[:2])[:, None], windows[..., -task.classes :]
        )
        return trainer.scores(batch)[:, count - 1].float().cpu()

    returns = [task.references().normalised(value) for value in task.returns(act, test)]
    return ClusterValues(sizes=(1,) * len(returns), sums=tuple(returns))
