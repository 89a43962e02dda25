"""The outcome of a run: the points of its curve, and its final figures."""

from pydantic import Field

from harness.records.answers import Answers
from harness.records.fields import Count, Frozen, Seconds


class Point(Frozen):
    """One point of a run's curve.

    Attributes:
        step: optimiser steps done.
        seconds: training time so far, evaluation excluded.
        loss: mean task loss since the last point.
        losses: mean of each auxiliary loss since the last point, weighted.
        dev: the score on the whole dev split, of `Record.dev_metric`; None where it was not
            evaluated.
    """

    step: Count
    seconds: Seconds
    loss: float
    losses: dict[str, float] = Field(default={})
    dev: float | None = None

    @property
    def evaluated(self) -> bool:
        """Whether dev was evaluated at this point."""
        return self.dev is not None


class Final(Frozen):
    """The outcome of a finished run, at the checkpoint that was best on dev.

    Attributes:
        score: on the whole test split, evaluated once, in the unit of `Record.metric`.
        test_examples: size of that split.
        dev: the score of that checkpoint on dev, in the unit of `Record.dev_metric`.
        best_step: its step.
        train_seconds: time inside training steps.
        seconds: of the whole run over all its processes: data, costs, training, evaluation.
        sample: what the score is the mean of, from which runs are compared; None in records of
            before it was stored.
        best_on_test: the best score on test of all evaluations, which is no result: it is chosen on
            test. None unless the recipe asks for it.
    """

    score: float
    test_examples: Count
    dev: float
    best_step: Count
    train_seconds: Seconds
    seconds: Seconds
    sample: Answers | None = None
    best_on_test: float | None = None
