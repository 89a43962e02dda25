"""The baselines of a task: what is reached on its test split without attention.

They belong to the task and its data, not to a run: a store has one file of them for each.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Literal

from harness.records.fields import Count, Frozen, Time
from harness.records.record import Environment
from harness.records.spec import TaskSpec
from tasks.metric import Metric

FOLDER = "baselines"
"""The folder of these files in a store."""


class TaskBaselines(Frozen):
    """The baselines of a task on given data.

    Attributes:
        schema_version: of this class.
        spec: the task and its data.
        version: of the set of baselines that the code has: `tasks.BASELINES_VERSION`.
        metric: of the task.
        scores: on test, by name, in its unit.
        left: steps that are not fitted yet, in order; empty where the set is complete.
        started: when the first step began.
        environment: of the fits.
    """

    schema_version: Literal[2] = 2
    spec: TaskSpec
    version: Count
    metric: Metric
    scores: Mapping[str, float]
    left: tuple[str, ...] = ()
    started: Time
    environment: Environment


def name_of_task(spec: TaskSpec) -> str:
    """The name of the file of a task's baselines, without suffix: one for each key and digest."""
    text = json.dumps([spec.key, spec.digests], sort_keys=True)
    return f"{spec.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def missing(spec: TaskSpec) -> str:
    """Which file a table without baselines lacks, and how to make it."""
    return (
        f"{FOLDER}/{name_of_task(spec)}.json is missing, incomplete or not of this version's set "
        "of baselines; make it with: harness report --baselines"
    )
