"""Kinds of targets: loss, correctness, and the baselines that ignore the input."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.nn import functional as F

from zoo.registry import UserError

Scores = Float[Tensor, "*answers classes"]
Targets = Shaped[Tensor, "*answers"]
AllTargets = Shaped[Tensor, "..."]

Metric = Literal["bits per byte", "perplexity", "normalised return"]
"""What is shown of a mean cross-entropy, or of the rollouts of a policy."""


class Answers(ABC):
    """A kind of target. Every target has the same weight, however many an example has.

    Attributes:
        metric: what is shown of test, where the loss on dev selects the checkpoint; None where
            accuracy does both.
        exact: whether an answer is correct or wrong; otherwise there is no accuracy.
    """

    metric: Metric | None = None
    exact: ClassVar[bool] = True

    @abstractmethod
    def loss(self, scores: Scores, targets: Targets) -> Float[Tensor, ""]:
        """The training loss: a mean over all targets."""

    @abstractmethod
    def correct(self, scores: Scores, targets: Targets) -> Bool[Tensor, "*answers"]:
        """Which answers are correct."""

    @abstractmethod
    def baselines(self, train: AllTargets, test: AllTargets, classes: int) -> Mapping[str, float]:
        """Test accuracies in [0, 1], by name, of constant answers."""

    def smoothed(self, weight: float) -> "Answers":
        """The same with label smoothing: the uniform distribution has that weight in a target.

        Raises:
            UserError: the targets are no classes, and `weight` is not 0.
        """
        if weight:
            raise UserError(f"label_smoothing={weight} needs classes as targets; leave it out")
        return self

    def losses(self, scores: Scores, targets: AllTargets) -> Float[Tensor, "..."] | None:
        """The loss of each target in float32, 0 where there is none; None without a metric."""
        return None

    def counted(self, targets: AllTargets) -> Bool[Tensor, "..."]:
        """Which entries are targets: all of them, unless a kind has entries that are none."""
        return torch.ones_like(targets, dtype=torch.bool)


@dataclass(frozen=True)
class Classes(Answers):
    """One of several classes: cross-entropy; the answer is the class of the highest score.

    Attributes:
        smoothing: weight of the uniform distribution in the target of the loss.
    """

    smoothing: float = 0.0

    def loss(self, scores: Scores, targets: AllTargets) -> Float[Tensor, ""]:
        """See `Answers.loss`; computed in float32. A target may be a distribution of classes."""
        mixed = targets.is_floating_point()
        return F.cross_entropy(
            scores.float().flatten(0, -2),
            targets if mixed else targets.flatten(),
            label_smoothing=self.smoothing,
        )

    def smoothed(self, weight: float) -> Answers:
        """See `Answers.smoothed`."""
        return replace(self, smoothing=weight) if weight else self

    def correct(self, scores: Scores, targets: Targets) -> Bool[Tensor, "*answers"]:
        """See `Answers.correct`."""
        return scores.argmax(-1) == targets

    def baselines(self, train: AllTargets, test: AllTargets, classes: int) -> Mapping[str, float]:
        """See `Answers.baselines`: `chance`, and `majority`, the most frequent class of train."""
        most_frequent = train.flatten().bincount(minlength=classes).argmax()
        majority = (test == most_frequent).double().mean().item()
        return {"chance": 1.0 / classes, "majority": majority}


@dataclass(frozen=True)
class Number(Answers):
    """One number: squared error; correct where the error is below `tolerance`."""

    tolerance: float

    def loss(self, scores: Scores, targets: Targets) -> Float[Tensor, ""]:
        """See `Answers.loss`; computed in float32."""
        return F.mse_loss(scores.float()[..., 0], targets.float())

    def correct(self, scores: Scores, targets: Targets) -> Bool[Tensor, "*answers"]:
        """See `Answers.correct`."""
        return (scores[..., 0] - targets).abs() < self.tolerance

    def baselines(self, train: AllTargets, test: AllTargets, classes: int) -> Mapping[str, float]:
        """See `Answers.baselines`: `mean`, the mean of train, which minimises squared error."""
        close = (test - train.double().mean()).abs() < self.tolerance
        return {"mean": close.double().mean().item()}


@dataclass(frozen=True)
class NextTokens(Classes):
    """The next token, at every position of a window of text: cross-entropy.

    The entries of an incomplete window after the end of its text are -1. They are no targets: they
    are in no loss, and no answer to them is correct.
    """

    metric: Metric | None = "perplexity"

    def loss(self, scores: Scores, targets: Targets) -> Float[Tensor, ""]:
        """See `Answers.loss`; computed in float32."""
        return F.cross_entropy(
            scores.float().flatten(0, -2),
            targets.flatten(),
            ignore_index=-1,
            label_smoothing=self.smoothing,
        )

    def losses(self, scores: Scores, targets: AllTargets) -> Float[Tensor, "..."]:
        """See `Answers.losses`: the cross-entropy in nats."""
        losses = F.cross_entropy(
            scores.float().flatten(0, -2), targets.flatten(), ignore_index=-1, reduction="none"
        )
        return losses.view_as(targets)

    def baselines(self, train: AllTargets, test: AllTargets, classes: int) -> Mapping[str, float]:
        """See `Answers.baselines`: those of `Classes`."""
        return super().baselines(train[train >= 0], test[test >= 0], classes)

    def counted(self, targets: AllTargets) -> Bool[Tensor, "..."]:
        """See `Answers.counted`."""
        return targets >= 0


@dataclass(frozen=True)
class Actions(Answers):
    """A vector at every step of a window: squared error, a mean over its numbers.

    Entries of NaN are no targets: they are in no loss.
    """

    metric: Metric | None = "normalised return"
    exact = False

    def loss(self, scores: Scores, targets: AllTargets) -> Float[Tensor, ""]:
        """See `Answers.loss`; computed in float32."""
        return self.losses(scores, targets).sum() / self.counted(targets).sum()

    def losses(self, scores: Scores, targets: AllTargets) -> Float[Tensor, "..."]:
        """See `Answers.losses`."""
        counted = self.counted(targets)[..., None]
        # Before the difference, whose gradient would be NaN where there is no target.
        errors = scores.float() - torch.where(counted, targets, 0.0)
        return torch.where(counted, errors, 0.0).square().mean(-1)

    def correct(self, scores: Scores, targets: AllTargets) -> Bool[Tensor, "..."]:
        """See `Answers.correct`: none, as no action is correct or wrong."""
        return torch.zeros_like(self.counted(targets))

    def baselines(self, train: AllTargets, test: AllTargets, classes: int) -> Mapping[str, float]:
        """See `Answers.baselines`: none; `Task.baseline_returns` has those of rollouts."""
        return {}

    def counted(self, targets: AllTargets) -> Bool[Tensor, "..."]:
        """See `Answers.counted`; one value for each vector."""
        return ~targets.isnan().any(-1)


CLASSES: Answers = Classes()
