"""The outcome of a run: the points of its curve, and its final figures."""

from typing import Annotated

from pydantic import model_validator

from harness.records.answers import CorrectAnswers
from harness.records.fields import OMITTED_IF_NONE, Fraction, Seconds
from harness.records.returns import EpisodeReturns
from harness.records.scores import ClusterScores, Nats
from harness.records.spec import Count, Frozen


class Point(Frozen):
    """One point of a run's curve.

    Attributes:
        step: optimiser steps done.
        seconds: training time so far, evaluation excluded.
        loss: mean task loss since the last point.
        losses: mean of each auxiliary loss since the last point, weighted.
        dev_accuracy: fraction correct on the whole dev split; None where it was not evaluated, and
            for actions.
        dev_loss: mean cross-entropy on dev in nats, of a language model, or mean squared error, of
            actions; None elsewhere.
    """

    step: Count
    seconds: Seconds
    loss: float
    losses: dict[str, float]
    dev_accuracy: Fraction | None
    dev_loss: Annotated[Nats | None, OMITTED_IF_NONE] = None

    @property
    def evaluated(self) -> bool:
        """Whether dev was evaluated at this point."""
        return self.dev_accuracy is not None or self.dev_loss is not None


class Final(Frozen):
    """The outcome of a finished run, at the checkpoint that was best on dev.

    Attributes:
        test_accuracy: fraction correct on the whole test split, evaluated once; None for actions,
            of which none is correct or wrong.
        test_examples: size of that split.
        dev_accuracy: of that checkpoint; None likewise.
        best_step: its step.
        train_seconds: time inside training steps.
        seconds: of the whole run over all its processes: data, costs, training, evaluation.
        answers: which answers of the test split were correct; None in records of before they were
            stored, and for a language model.
        scores: the cross-entropies on the test split, of a language model; None elsewhere.
        returns: those of the test episodes, of a task of trajectories; None elsewhere.
        dev_loss: of that checkpoint, which is the one with the lowest; None without scores and
            returns.
        best_on_test: the highest fraction correct on test of all evaluations, which is no result:
            it is chosen on test. None unless the recipe asks for it.
    """

    test_accuracy: Annotated[Fraction | None, OMITTED_IF_NONE] = None
    test_examples: Count
    dev_accuracy: Annotated[Fraction | None, OMITTED_IF_NONE] = None
    best_step: Count
    train_seconds: Seconds
    seconds: Seconds
    answers: Annotated[CorrectAnswers | None, OMITTED_IF_NONE] = None
    scores: Annotated[ClusterScores | None, OMITTED_IF_NONE] = None
    returns: Annotated[EpisodeReturns | None, OMITTED_IF_NONE] = None
    dev_loss: Annotated[Nats | None, OMITTED_IF_NONE] = None
    best_on_test: Annotated[Fraction | None, OMITTED_IF_NONE] = None

    @property
    def measured(self) -> ClusterScores | EpisodeReturns | None:
        """What is compared in place of accuracies; None where these are."""
        return self.scores or self.returns

    @property
    def test_score(self) -> float:
        """What orders runs, higher is better: an accuracy, minus a loss in nats, or a return."""
        return self.measured.score if self.measured else self.test_accuracy or 0.0

    @property
    def dev_score(self) -> float:
        """What selects a checkpoint and a point of a grid, higher is better: on dev."""
        return (self.dev_accuracy or 0.0) if self.dev_loss is None else -self.dev_loss

    @model_validator(mode="after")
    def _scores_agree(self) -> "Final":
        if self.scores and self.returns:
            raise ValueError("scores and returns are of different tasks")
        if (self.measured is None) != (self.dev_loss is None):
            raise ValueError("dev_loss is given if and only if scores or returns are")
        accuracies = (self.test_accuracy is None, self.dev_accuracy is None)
        if accuracies != (self.returns is not None,) * 2:
            raise ValueError("accuracies are given if and only if there are no returns")
        if self.returns and len(self.returns.returns) != self.test_examples:
            raise ValueError(f"returns are not those of {self.test_examples} episodes")
        if self.scores and self.scores.accuracy != self.test_accuracy:
            raise ValueError(f"scores are not of test_accuracy={self.test_accuracy}")
        return self

    @model_validator(mode="after")
    def _best_is_highest(self) -> "Final":
        if self.best_on_test is not None and self.best_on_test < (self.test_accuracy or 0.0):
            raise ValueError(f"best_on_test={self.best_on_test} is below test_accuracy")
        return self

    @model_validator(mode="after")
    def _answers_agree(self) -> "Final":
        if self.answers is None:
            return self
        correct, count = self.answers.correct, self.answers.count
        if count % self.test_examples or correct / count != self.test_accuracy:
            raise ValueError(
                f"{correct} correct answers of {count} are not test_accuracy={self.test_accuracy} "
                f"on {self.test_examples} examples"
            )
        return self
