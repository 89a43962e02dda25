"""The objective of KSVD and the alignment with the exact solution, while a layer is trained."""

from typing import Annotated, Literal

from pydantic import Field

from harness.records.fields import Count, Frozen

Cosine = Annotated[float, Field(ge=0, le=1)]
"""The mean squared cosine of the principal angles of two subspaces."""

Loss = Literal["ksvd", "task", "task+ksvd", "reconstruction", "run"]
Trained = Literal["weights", "all", "run"]


class KsvdState(Frozen):
    """A layer after a number of steps, means over samples and heads.

    Attributes:
        step: optimiser steps done.
        objective: J.
        left: alignment of the scores of queries with the first s left singular vectors.
        right: that of the scores of keys with the first s right singular vectors.
        task: loss of the task, 1 for the best constant output; None of a run.
    """

    step: Annotated[int, Field(ge=0)]
    objective: float
    left: Cosine
    right: Cosine
    task: float | None = None


class KsvdCurve(Frozen):
    """One layer in training.

    Attributes:
        inputs: `random`, `smooth`, or the run and layer whose inputs they are.
        trained: all parameters but queries and keys (`weights`), `all`, or those of a `run`.
        trace: of the objective: `weights` or `data`.
        loss: what is minimised.
        seed: of the parameters.
        samples: sequences.
        tokens: the longest of them.
        heads: attention heads.
        width: p, features of a head.
        rank: s, singular directions.
        states: in order of their steps.
    """

    inputs: str
    trained: Trained
    trace: str
    loss: Loss
    seed: int
    samples: Count
    tokens: Count
    heads: Count
    width: Count
    rank: Count
    states: tuple[KsvdState, ...] = Field(min_length=1)

    @property
    def random(self) -> float:
        """The expected alignment of a uniformly random subspace of the span of the features."""
        return min(1.0, self.rank / self.width)
