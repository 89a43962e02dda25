"""The record of a run: its specification, environment, outcome and cost."""

import operator
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from harness.records.answers import CorrectAnswers
from harness.records.returns import EpisodeReturns, Return
from harness.records.scores import ClusterScores, Nats
from harness.records.spec import Count, Frozen, RunSpec

Status = Literal["ok", "diverged", "out_of_memory", "failed", "interrupted"]

FINAL: tuple[Status, ...] = ("ok", "diverged", "out_of_memory")
"""Statuses of runs that are not repeated: they would end in the same way."""

OMITTED_IF_NONE = Field(exclude_if=lambda value: value is None)
"""A field that is left out where it is None: older records, without it, stay as they are."""

Fraction = Annotated[float, Field(ge=0, le=1)]
"""An accuracy."""

Positive = Annotated[float, Field(gt=0, lt=1e15)]
"""A measured time, rate or ratio."""

Seconds = Annotated[float, Field(ge=0, lt=1e15)]
"""Elapsed time."""


def _check_time(text: str) -> str:
    if datetime.fromisoformat(text).utcoffset() != timedelta(0):
        raise ValueError("it is not in UTC")
    return text


Time = Annotated[str, AfterValidator(_check_time)]
"""A date and time in UTC, ISO 8601."""

NO_ATTENTION = "none"
"""The only baseline among the variants of before a record stored which variants are baselines."""

WITHOUT_SOFTMAX = "softmax: out of memory"
"""Shown in tables instead of a ratio, if softmax did not fit in memory."""


class Quartiles(Frozen):
    """Quartiles of repeated measurements, in order."""

    q1: Positive
    median: Positive
    q3: Positive

    @model_validator(mode="after")
    def _ordered(self) -> "Quartiles":
        if not self.q1 <= self.median <= self.q3:
            raise ValueError(
                f"q1={self.q1}, median={self.median} and q3={self.q3} are not in order"
            )
        return self


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


class Usage(Frozen):
    """What one model costs on one device.

    Attributes:
        seconds_per_1k_steps: of training steps, auxiliary losses and optimiser included.
        tokens_per_second: inference, padding counted as tokens.
        peak_bytes: peak of the memory that one training step allocates.
        parameters: trainable parameters.
        flops: floating-point operations in matrix products of one training step.
        backend: the implementations that computed the attention layers, or `compiled`; empty where
            each variant has only one, and in records of before it was stored.
        state_bytes: memory of the state of decoding, of one sequence and all layers; None where a
            layer is not causal or not recurrent, and in records of before it was stored.
    """

    seconds_per_1k_steps: Quartiles
    tokens_per_second: Quartiles
    peak_bytes: Count
    parameters: Count
    flops: Count
    backend: str = ""
    # Left out where None, as `Final.answers`.
    state_bytes: Annotated[int | None, Field(ge=0, exclude_if=lambda value: value is None)] = None


class Cost(Frozen):
    """The cost of a model, and that of SDPA softmax, measured alternately in the same run.

    Attributes:
        own: of the model.
        softmax: of the same model with SDPA softmax; it and all ratios are None where it did not
            fit in memory.
        time_ratio: own training time over softmax's, pairwise; below 1 is faster.
        inference_ratio: own inference time over softmax's, pairwise; below 1 is faster.
        workers: cells that ran on the machine during the measurement, this one included. With more
            than 1 the times are those of a shared machine, until `harness measure` replaces them.
    """

    own: Usage
    softmax: Usage | None
    time_ratio: Quartiles | None
    inference_ratio: Quartiles | None
    # Left out where 1, as in records from before there was this field.
    workers: Annotated[Count, Field(exclude_if=lambda value: value == 1)] = 1

    @model_validator(mode="after")
    def _agree(self) -> "Cost":
        parts = (self.softmax, self.time_ratio, self.inference_ratio)
        if len({part is None for part in parts}) > 1:
            raise ValueError("softmax and its ratios are all given, or none of them is")
        return self

    @property
    def memory_ratio(self) -> float | None:
        """Own peak over softmax's; below 1 is smaller."""
        return self.own.peak_bytes / self.softmax.peak_bytes if self.softmax else None


class Environment(Frozen):
    """The environment of a run.

    Attributes:
        device: name of the processor or GPU that trained.
        threads: CPU threads that torch used.
        memory_gib: memory of that device.
        system: operating system and architecture.
        versions: by package; Python is one of them.
        commit: of this project's checkout, with `+` where code differed; empty where unknown;
            several where a run was continued or measured again at another commit.
    """

    device: str
    threads: Count
    memory_gib: Positive
    system: str
    versions: dict[str, str]
    commit: str

    @property
    def commits(self) -> list[str]:
        """Each commit; `unknown` where there is none."""
        return (self.commit or "unknown").split(", ")


class Record(Frozen):
    """One run; every table and figure is made from records alone.

    Attributes:
        schema_version: of this class; a record of another version is not read.
        spec: what was run.
        status: how the run ended.
        reason: one line; empty where status is `ok`.
        started: when the run began.
        environment: that of the run.
        implementations: SHA-256 of the sources of each variant; see `harness.provenance`.
        baselines: accuracies without attention on the same test split, by name.
        baseline_losses: mean cross-entropies in nats of models without attention on the same test
            split, by name; empty unless the run is a language model.
        baseline_returns: normalised returns in the test episodes without a model, by name; empty
            unless the task is one of trajectories.
        expected_failures: checks that its variants are expected to fail, `VARIANT: CHECK`, each
            with its reason.
        is_baseline: whether no variant of the run is attention; None in records of before it was
            stored, see `without_attention`.
        curve: points in order of step.
        cost: None where the run ended before it was measured.
        final: None where the run did not finish.
    """

    schema_version: Literal[2] = 2
    spec: RunSpec
    status: Status
    reason: str
    started: Time
    environment: Environment
    implementations: Mapping[str, str]
    baselines: Mapping[str, Fraction]
    expected_failures: Mapping[str, str]
    curve: list[Point]
    cost: Cost | None
    final: Final | None
    is_baseline: Annotated[bool | None, OMITTED_IF_NONE] = None
    baseline_losses: Annotated[Mapping[str, Nats], Field(exclude_if=operator.not_)] = Field(
        default={}
    )
    baseline_returns: Annotated[Mapping[str, Return], Field(exclude_if=operator.not_)] = Field(
        default={}
    )

    @property
    def without_attention(self) -> bool:
        """Whether the model uses no attention, so that its accuracy is a baseline."""
        if self.is_baseline is None:
            return self.spec.attention == NO_ATTENTION
        return self.is_baseline

    @model_validator(mode="after")
    def _finished(self) -> "Record":
        if (self.status == "ok") != (self.final is not None):
            raise ValueError("a record has final figures if and only if its status is ok")
        return self
