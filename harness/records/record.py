"""The record of a run: what was run, where, how it went, and what it cost."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from harness.records.spec import Count, Frozen, RunSpec

Status = Literal["ok", "diverged", "out_of_memory", "failed", "interrupted"]

FINAL: tuple[Status, ...] = ("ok", "diverged", "out_of_memory")
"""Ends that the same specification would come to again."""

Fraction = Annotated[float, Field(ge=0, le=1)]
"""An accuracy."""

Positive = Annotated[float, Field(gt=0, lt=1e15)]
"""A time, a rate or a ratio: measured, so neither zero nor beyond all bounds."""

Seconds = Annotated[float, Field(ge=0, lt=1e15)]
"""Time so far; zero before anything took time."""


WITHOUT_SOFTMAX = "softmax: out of memory"
"""Written in place of a ratio, in every table, where softmax did not fit in memory."""


class Quartiles(Frozen):
    """The middle half of repeated measurements."""

    q1: Positive
    median: Positive
    q3: Positive


class Point(Frozen):
    """One point of a run's curve.

    Attributes:
        step: optimiser steps done.
        seconds: training time so far, evaluation excluded.
        loss: mean task loss since the last point.
        losses: mean of each extra loss term since the last point, as weighted.
        dev_accuracy: fraction correct on the whole dev split; None where it was not evaluated.
    """

    step: Count
    seconds: Seconds
    loss: float
    losses: dict[str, float]
    dev_accuracy: Fraction | None


class Final(Frozen):
    """The outcome of a finished run, at the checkpoint that was best on dev.

    Attributes:
        test_accuracy: fraction correct on the whole test split, evaluated once.
        test_examples: size of that split.
        dev_accuracy: of the chosen checkpoint.
        best_step: the step at which it was taken.
        train_seconds: time inside training steps.
        seconds: everything, in all processes that took part: data, measuring, training, evaluation.
    """

    test_accuracy: Fraction
    test_examples: Count
    dev_accuracy: Fraction
    best_step: Count
    train_seconds: Seconds
    seconds: Seconds


class Usage(Frozen):
    """What one model costs on one device.

    Attributes:
        seconds_per_1k_steps: of the step that trains, extra losses and optimiser included.
        tokens_per_second: inference, padding counted as tokens.
        peak_bytes: the most memory allocated during one training step, beyond what was held
            before it.
        parameters: trainable parameters.
        flops: floating-point operations in matrix products of one training step.
    """

    seconds_per_1k_steps: Quartiles
    tokens_per_second: Quartiles
    peak_bytes: Count
    parameters: Count
    flops: Count


class Cost(Frozen):
    """A model's cost, and that of SDPA softmax measured in turns with it, in the same run.

    Attributes:
        own: of the model.
        softmax: of the same model with SDPA softmax; None where it did not fit in memory, and with
            it all ratios.
        time_ratio: own training time over softmax's, pairwise; below 1 is faster.
        inference_ratio: own inference time over softmax's, pairwise; below 1 is faster.
    """

    own: Usage
    softmax: Usage | None
    time_ratio: Quartiles | None
    inference_ratio: Quartiles | None

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
    """Where a run happened.

    Attributes:
        device: name of the processor or GPU that trained.
        threads: CPU threads that torch used.
        memory_gib: memory of that device.
        system: operating system and architecture.
        versions: by package, python among them.
        commit: of this project's checkout, with `+` where code differed; empty where unknown, and
            several where a run was begun at one and finished, or measured again, at another.
    """

    device: str
    threads: Count
    memory_gib: Positive
    system: str
    versions: dict[str, str]
    commit: str

    @property
    def commits(self) -> list[str]:
        """Each commit by itself; `unknown` where none is known."""
        return (self.commit or "unknown").split(", ")


class Record(Frozen):
    """One run, whole: any table or figure can be made again from records alone.

    Attributes:
        schema_version: of this class; a record of another version is not read.
        spec: what was run.
        status: `ok`, or how it ended.
        reason: one line where status is not `ok`.
        started: UTC, ISO 8601.
        environment: where.
        implementations: SHA-256 of the source of each variant's module, by variant.
        baselines: test accuracies on the same split that need no attention, by name.
        expected_failures: checks that its variants are known to fail, `VARIANT: CHECK`, each with
            its reason.
        curve: points in order of step.
        cost: None where the run ended before it was measured.
        final: None where the run did not finish.
    """

    schema_version: Literal[2] = 2
    spec: RunSpec
    status: Status
    reason: str
    started: str
    environment: Environment
    implementations: Mapping[str, str]
    baselines: Mapping[str, Fraction]
    expected_failures: Mapping[str, str]
    curve: list[Point]
    cost: Cost | None
    final: Final | None

    @model_validator(mode="after")
    def _finished(self) -> "Record":
        if (self.status == "ok") != (self.final is not None):
            raise ValueError("a record has final figures if and only if its status is ok")
        return self
