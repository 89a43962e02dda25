"""Kinds of targets: loss, metric, and the baselines that ignore the input."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from tasks import metrics
from tasks.metrics import Metric
from zoo.registry import UserError

Scores = Float[Tensor, "*answers classes"]
Targets = Shaped[Tensor, "*answers"]
AllTargets = Shaped[Tensor, "..."]


class Answers(ABC):
    """A kind of target. Every target has the same weight, however many an example has.

    Attributes:
        measure: the name in `tasks.metrics` of what is shown; on dev it selects the checkpoint.
    """

    measure: str

    @property
    def metric(self) -> Metric:
        """The metric, without the chance of a task."""
        return metrics.find(self.measure).metric

    def metric_of(self, classes: int) -> Metric:
        """The metric on a task of so many classes."""
        mean = self.chance(classes)
        update = {} if mean is None else {"chance": self.metric.value(mean)}
        return self.metric.model_copy(update=update)

    def values(self, scores: Scores, targets: AllTargets) -> Shaped[Tensor, "..."]:
        """The number for each target whose mean is the metric: see `tasks.metrics.Measure`."""
        return metrics.find(self.measure).values(self, scores, targets)

    def chance(self, classes: int) -> float | None:
        """The mean of `values` of uniform guesses; None where there is none."""
        return metrics.find(self.measure).chance(classes)

    @abstractmethod
    def loss(self, scores: Scores, targets: Targets) -> Float[Tensor, ""]:
        """The training loss: a mean over all targets."""

    def baselines(self, train: AllTargets, test: AllTargets, classes: int) -> Mapping[str, float]:
        """Means of `values` on test, by name, of constant answers: by default `chance`, if any."""
        chance = self.chance(classes)
        return {} if chance is None else {"chance": chance}

    def smoothed(self, weight: float) -> "Answers":
        """The same with label smoothing: the uniform distribution has that weight in a target."""
        if weight:
            raise UserError(f"label_smoothing={weight} needs classes as targets; leave it out")
        return self

    def counted(self, targets: AllTargets) -> Bool[Tensor, "..."]:
        """True for entries that are targets: all of them, unless a kind has others."""
        return torch.ones_like(targets, dtype=torch.bool)


@dataclass(frozen=True)
class Classes(Answers):
    """One of several classes: cross-entropy; the answer is the class of the highest score."""

    no_target: ClassVar[int] = -100
    """A target that is none."""

    smoothing: float = 0.0
    measure: str = "accuracy"

    def loss(self, scores: Scores, targets: AllTargets) -> Float[Tensor, ""]:
        """Computed in float32. A target may be a distribution of classes."""
        return F.cross_entropy(
            scores.float().flatten(0, -2),
            targets if targets.is_floating_point() else targets.flatten(),
            ignore_index=self.no_target,
            label_smoothing=self.smoothing,
        )

    @override
    def smoothed(self, weight: float) -> Answers:
        return replace(self, smoothing=weight) if weight else self

    def correct(self, scores: Scores, targets: Targets) -> Bool[Tensor, "*answers"]:
        """True for correct answers."""
        return scores.argmax(-1) == targets

    def baselines(self, train: AllTargets, test: AllTargets, classes: int) -> Mapping[str, float]:
        """`chance`, and `majority`, the counts of train as scores; of the entries with a target."""
        train, test = train[self.counted(train)], test[self.counted(test)]
        counts = train.bincount(minlength=classes).double()
        majority = self.values(counts.expand(*test.shape, classes), test).double().mean().item()
        return {**Answers.baselines(self, train, test, classes), "majority": majority}


@dataclass(frozen=True)
class Number(Answers):
    """One number: squared error; correct where the error is below `tolerance`."""

    tolerance: float
    measure: str = "accuracy"

    def loss(self, scores: Scores, targets: Targets) -> Float[Tensor, ""]:
        """Computed in float32."""
        return F.mse_loss(scores.float()[..., 0], targets.float())

    def correct(self, scores: Scores, targets: Targets) -> Bool[Tensor, "*answers"]:
        """True for correct answers."""
        return (scores[..., 0] - targets).abs() < self.tolerance

    def chance(self, classes: int) -> None:
        """A number is not guessed uniformly."""

    def baselines(self, train: AllTargets, test: AllTargets, classes: int) -> Mapping[str, float]:
        """`mean`, the mean of train, which minimises squared error."""
        close = (test - train.double().mean()).abs() < self.tolerance
        return {"mean": close.double().mean().item()}


@dataclass(frozen=True)
class SomeClasses(Classes):
    """A class at some of the entries; the others are -1: in no loss, and no answer is correct."""

    no_target: ClassVar[int] = -1

    @override
    def counted(self, targets: AllTargets) -> Bool[Tensor, "..."]:
        return targets >= 0


@dataclass(frozen=True)
class NextTokens(SomeClasses):
    """The next token, at every position of a window of text: cross-entropy.

    The entries of an incomplete window after the end of its text are no targets.
    """

    measure: str = "perplexity"

    def losses(self, scores: Scores, targets: AllTargets) -> Float[Tensor, "..."]:
        """The cross-entropy of each target in nats, float32; 0 where there is none."""
        losses = F.cross_entropy(
            scores.float().flatten(0, -2),
            targets.flatten(),
            ignore_index=self.no_target,
            reduction="none",
        )
        return losses.view_as(targets)

    def baselines(self, train: AllTargets, test: AllTargets, classes: int) -> Mapping[str, float]:
        """`chance`; n-grams are models of `tasks.baselines`."""
        return Answers.baselines(self, train, test, classes)


@dataclass(frozen=True)
class Actions(Answers):
    """A vector at every step of a window: squared error, a mean over its numbers.

    Entries of NaN are no targets: they are in no loss.
    """

    measure: str = "squared-error"

    def loss(self, scores: Scores, targets: AllTargets) -> Float[Tensor, ""]:
        """Computed in float32."""
        return self.losses(scores, targets).sum() / self.counted(targets).sum()

    def losses(self, scores: Scores, targets: AllTargets) -> Float[Tensor, "..."]:
        """The squared error of each target, float32; 0 where there is none."""
        counted = self.counted(targets)[..., None]
        # Before the difference, whose gradient would be NaN where there is no target.
        errors = scores.float() - torch.where(counted, targets, 0.0)
        return torch.where(counted, errors, 0.0).square().mean(-1)

    def counted(self, targets: AllTargets) -> Bool[Tensor, "..."]:
        """One value for each vector."""
        return ~targets.isnan().any(-1)


CLASSES: Answers = Classes()
