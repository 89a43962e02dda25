"""Results on a task without attention: its baselines, and shallow models."""

from collections.abc import Mapping
from typing import Literal

from harness.records.fields import Count, Fraction, Frozen, Seconds, Time
from harness.records.record import Environment
from harness.records.spec import TaskSpec
from tasks.metrics import Metric


class TaskBaselines(Frozen):
    """The baselines of a task on its data; `left` names the steps that remain to be fitted.

    `version` is `tasks.BASELINES_VERSION`, the set of baselines of the code.
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
    """One fitted model, named by its features, with the seconds of features and fit."""

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
