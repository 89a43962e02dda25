"""What a language model reached on each cluster of a test split."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from harness.records.spec import Count, Frozen

Metric = Literal["bits per byte", "perplexity", "normalised return"]
"""What is shown of test in place of an accuracy; see `tasks.answers`."""

Nats = Annotated[float, Field(ge=0, lt=1e15)]
"""A cross-entropy, natural logarithm; on dev also a mean squared error of actions."""

MOST_CLUSTERS = 10**7
"""Clusters of the largest test split that a record may have."""


class ClusterScores(Frozen):
    """The cross-entropies of a test split, cluster by cluster, such as the articles of a text.

    Runs on the same test split have the same clusters in the same order.

    Attributes:
        metric: how the mean is shown.
        sizes: tokens that are predicted, by cluster.
        correct: of these, how many are the most probable token.
        nats: the sum of their cross-entropies.
    """

    metric: Metric
    sizes: Annotated[tuple[Count, ...], Field(min_length=1, max_length=MOST_CLUSTERS)]
    correct: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...]
    nats: tuple[Nats, ...]

    @property
    def count(self) -> int:
        """Tokens that are predicted."""
        return sum(self.sizes)

    @property
    def compared(self) -> tuple[float, ...]:
        """By cluster, higher is better: minus the cross-entropies."""
        return tuple(-nats for nats in self.nats)

    @property
    def loss(self) -> float:
        """Mean cross-entropy in nats per token."""
        return sum(self.nats) / self.count

    @property
    def score(self) -> float:
        """Minus the loss."""
        return -self.loss

    @property
    def accuracy(self) -> float:
        """Fraction of tokens that are the most probable one."""
        return sum(self.correct) / self.count

    @model_validator(mode="after")
    def _agree(self) -> "ClusterScores":
        if not len(self.sizes) == len(self.correct) == len(self.nats):
            raise ValueError("sizes, correct and nats have one value for each cluster")
        if any(correct > size for correct, size in zip(self.correct, self.sizes, strict=True)):
            raise ValueError("a cluster has more correct tokens than tokens")
        return self
