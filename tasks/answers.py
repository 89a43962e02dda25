"""What a target is: how it is learned, when an answer is right, and what needs no model at all."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.nn import functional as F

Scores = Float[Tensor, "*answers classes"]
Targets = Shaped[Tensor, "*answers"]
Whole = Shaped[Tensor, "..."]


class Answers(ABC):
    """A kind of target. Every answer counts the same, however many an example asks for."""

    @abstractmethod
    def loss(self, scores: Scores, targets: Targets) -> Float[Tensor, ""]:
        """What training lowers: a mean over all answers."""

    @abstractmethod
    def correct(self, scores: Scores, targets: Targets) -> Bool[Tensor, "*answers"]:
        """Which answers are right."""

    @abstractmethod
    def baselines(self, train: Whole, test: Whole, classes: int) -> Mapping[str, float]:
        """Test accuracies in [0, 1] of answers that look at no example, by name."""


@dataclass(frozen=True)
class Classes(Answers):
    """One class of several: cross-entropy; the highest score answers."""

    def loss(self, scores: Scores, targets: Targets) -> Float[Tensor, ""]:
        """See `Answers.loss`."""
        return F.cross_entropy(scores.float().flatten(0, -2), targets.flatten())

    def correct(self, scores: Scores, targets: Targets) -> Bool[Tensor, "*answers"]:
        """See `Answers.correct`."""
        return scores.argmax(-1) == targets

    def baselines(self, train: Whole, test: Whole, classes: int) -> Mapping[str, float]:
        """See `Answers.baselines`: `chance`, and `majority`, which is train's commonest class."""
        most_frequent = train.flatten().bincount(minlength=classes).argmax()
        majority = (test == most_frequent).double().mean().item()
        return {"chance": 1.0 / classes, "majority": majority}


@dataclass(frozen=True)
class Number(Answers):
    """One number: squared error; right where it is less than `tolerance` off."""

    tolerance: float

    def loss(self, scores: Scores, targets: Targets) -> Float[Tensor, ""]:
        """See `Answers.loss`."""
        return F.mse_loss(scores.float()[..., 0], targets.float())

    def correct(self, scores: Scores, targets: Targets) -> Bool[Tensor, "*answers"]:
        """See `Answers.correct`."""
        return (scores[..., 0] - targets).abs() < self.tolerance

    def baselines(self, train: Whole, test: Whole, classes: int) -> Mapping[str, float]:
        """See `Answers.baselines`: `mean`, which is what squared error answers blindly."""
        close = (test - train.double().mean()).abs() < self.tolerance
        return {"mean": close.double().mean().item()}


CLASSES: Answers = Classes()
