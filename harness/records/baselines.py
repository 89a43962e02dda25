"""Results on a task without attention: its baselines, and the study of shallow models."""

from collections.abc import Mapping
from typing import Literal

from harness.records.fields import Count, Fraction, Frozen, Seconds, Time
from harness.records.record import Environment
from harness.records.spec import TaskSpec
from tasks.metrics import Metric

FOLDER = "baselines"


class TaskBaselines(Frozen):
    """The baselines of a task on given data; `left` are steps that are not fitted yet, in order.

    `version` is of the set of baselines that the code has: `tasks.BASELINES_VERSION`.
    """

    schema_version: Literal[2] = 2
    spec: TaskSpec
    version: Count
    metric: Metric
    scores: Mapping[str, float]
    left: tuple[str, ...] = ()
    started: Time
    environment: Environment


class ShallowModel(Frozen):
    """One fitted model by what it reads, with the seconds of its features and its fit."""

    name: str
    dev: Fraction
    test: Fraction
    seconds: Seconds


class ShallowStudy(Frozen):
    schema_version: Literal[1] = 1
    task: str
    sizes: Mapping[str, Count]
    digests: Mapping[str, str]
    models: tuple[ShallowModel, ...]
    started: Time
    environment: Environment

    @property
    def name(self) -> str:
        return self.task.partition("@")[0]
