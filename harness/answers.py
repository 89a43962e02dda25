"""The answers to a test split by cluster: which are correct, and their cross-entropies."""

from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from harness.records.answers import CorrectAnswers
from harness.records.scores import ClusterScores, Metric
from tasks.contract import Split


def by_cluster(correct: Bool[Tensor, "n ..."], split: Split) -> CorrectAnswers:
    """Every answer of a split with its clusters, those of fewest answers first.

    Args:
        correct: which answers are correct, (n,) or (n, a).
        split: theirs.
    """
    clusters = clusters_of(split)
    sizes = clusters.bincount()[clusters]
    # Stable sorts: by the number of examples of the cluster, then by cluster, then by example.
    order = clusters.argsort(stable=True)
    order = order[sizes[order].argsort(stable=True)]
    answers = correct.cpu()[order].flatten(1) if correct.dim() > 1 else correct.cpu()[order, None]
    _, examples = clusters[order].unique_consecutive(return_counts=True)
    return CorrectAnswers.pack(answers.flatten().tolist(), (examples * answers.shape[1]).tolist())


def scores_by_cluster(
    correct: Bool[Tensor, "n a"], losses: Float[Tensor, "n a"], split: Split, metric: Metric
) -> ClusterScores:
    """The sums of each cluster of a split, in order of the clusters' numbers.

    Args:
        correct: which answers are correct.
        losses: the cross-entropy of each answer in nats.
        split: the split whose targets they answer.
        metric: how the mean cross-entropy is shown.
    """
    _, clusters = clusters_of(split).unique(return_inverse=True)
    counted = split.answers.counted(split.targets)

    def sums(values: Shaped[Tensor, "n a"]) -> list[float]:
        return clusters.bincount(values.cpu().double().sum(1)).tolist()

    return ClusterScores(
        metric=metric,
        sizes=tuple(round(total) for total in sums(counted)),
        correct=tuple(round(total) for total in sums(correct)),
        nats=tuple(sums(losses)),
    )


def clusters_of(split: Split) -> Int[Tensor, " n"]:
    """The cluster of each example, on the CPU: that of its sequences which is in most examples.

    Where sequences are compared, such as the documents of Retrieval, each is in many examples. The
    dependence through the other sequence of an example is left out. A split with clusters of its
    own has these.
    """
    if split.clusters is not None:
        return split.clusters.cpu().long()
    ids = split.sequence_ids.cpu().long()
    uses = ids.flatten().bincount()[ids]
    return ids.gather(1, uses.argmax(1, keepdim=True))[:, 0]
