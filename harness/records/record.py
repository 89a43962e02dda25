"""The record of a run: its specification, environment and outcome."""

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from harness.records.answers import Answers
from harness.records.fields import Count, Frozen, Natural, Positive, Seconds, Time
from harness.records.spec import RunSpec, data_name
from harness.records.versions import Origin, line_of_run
from tasks.metrics import Metric
from zoo.registry import Value

Status = Literal["ok", "diverged", "out_of_memory", "failed", "interrupted"]
FINAL: tuple[Status, ...] = ("ok", "diverged", "out_of_memory")  # Such runs are not repeated


class Point(Frozen):
    step: Count
    seconds: Seconds  # Training time so far, without evaluation
    loss: float  # Mean task loss since the last point; `losses` are auxiliary ones, weighted
    losses: dict[str, float] = Field(default_factory=dict)
    dev: float | None = None  # The score on the whole dev split; None without an evaluation
    # Scores on parts of dev, by name; see `tasks.Task.groups`
    groups: dict[str, float] = Field(default_factory=dict)


class Probe(Frozen):
    """The score on a further split, see `tasks.Task.probes`, in the unit of `Record.metric`."""

    score: float
    sample: Answers


class Final(Frozen):
    """The outcome of a finished run, at the checkpoint that was best on dev."""

    score: float  # On the whole test split, evaluated once; in the unit of `Record.metric`
    test_examples: Count
    dev: float  # The score of that checkpoint on dev, in the unit of `Record.dev_metric`
    best_step: Count
    train_seconds: Seconds  # Time inside training steps
    seconds: Seconds  # Data, training and evaluation, over all processes of the run
    # The predictions whose mean is the score; None in earlier records
    sample: Answers | None = None
    probes: dict[str, Probe] = Field(default={})
    # The best evaluation on test, which selects nothing; None unless the recipe asks for it
    best_on_test: float | None = None


class Environment(Frozen):
    """The environment of a run: the device that trained, its memory, CPU threads, versions.

    `commit` is the project's checkout, with `+` if code differed, or empty if unknown; it lists
    several if the run was continued at another commit.
    """

    device: str
    threads: Count
    memory_gib: Positive
    system: str
    versions: dict[str, str]
    commit: str

    @property
    def commits(self) -> list[str]:
        return (self.commit or "unknown").split(", ")


class Processor(Frozen):
    """Processor seconds of all threads and child processes of a run, over all its processes.

    Data that a process had already read for another run take no time.
    """

    data: Seconds
    training: Seconds
    evaluation: Seconds

    @property
    def seconds(self) -> float:
        return self.data + self.training + self.evaluation


class Record(Frozen):
    """One run; every table and figure is made from records alone."""

    schema_version: Literal[5] = 5
    spec: RunSpec
    status: Status
    reason: str  # One line; empty if the status is `ok`
    started: Time
    environment: Environment
    versions: Mapping[str, str]  # The version of each variant; see `harness.records.versions`
    training: str  # The version of `harness.train`
    # SHA-256 of the user's file that the task reads, by path
    files: dict[str, str] = Field(default={})
    # Checks that its variants are expected to fail, `VARIANT: CHECK`, with the reason
    expected_failures: Mapping[str, str]
    is_baseline: bool
    # Every option of every variant, by variant, defaults included
    options: dict[str, dict[str, Value]]
    metric: Metric
    dev_metric: Metric | None = None  # The metric of scores on dev, if it is not `metric`
    parameters: Count | None = None
    # Floating-point operations in matrix products of one training step
    flops: Natural | None = None
    # Of the attention layers, or `compiled`; empty if each variant has only one, or unknown
    backend: str = ""
    # Of one sequence in all layers; None if a layer is not causal or recurrent, or unknown
    state_bytes: Natural | None = None
    curve: list[Point]
    final: Final | None = None
    processor: Processor | None = None  # None in earlier records

    @property
    def version(self) -> str:
        return line_of_run(self.versions, self.training)

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    @property
    def selection(self) -> Metric:
        return self.dev_metric or self.metric

    def thinned(self, points: int = 0) -> "Record":
        shown = range(0, len(self.curve), max(1, len(self.curve) // points)) if points else ()
        kept = [p for i, p in enumerate(self.curve[:-1]) if p.dev is not None or i in shown]
        return self.model_copy(update={"curve": [*kept, *self.curve[-1:]]})

    def model_post_init(self, _: Any) -> None:
        if (self.status == "ok") != (self.final is not None):
            raise ValueError("a record has final figures if and only if its status is ok")
        if self.final is None:
            return
        score, best, sample = self.final.score, self.final.best_on_test, self.final.sample
        if best is not None and self.metric.sign * (score - best) > 0:
            raise ValueError(f"best_on_test={best} is worse than score={score}")
        mean = self.metric.value(sample.mean) if sample else score
        if not math.isclose(mean, score, rel_tol=1e-9, abs_tol=1e-9):
            raise ValueError(f"its answers have the {self.metric.name} {mean}, not score={score}")


def origin_of(run: Any) -> Origin:
    task, data = run.spec.question.task, tuple(run.spec.data.items())
    version = line_of_run(run.versions, run.training)
    return Origin(version, task.key, data_name(task.name, task.key, data), run.files, run.started)
