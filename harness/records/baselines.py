"""What is reached on a task without attention: its baselines, and the study of shallow models.

Both belong to the task and its data, not to a run: a folder has one file of them for each.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from harness.records.fields import Count, Fraction, Frozen, Seconds, Time
from harness.records.files import read_text, write_atomic
from harness.records.record import Environment
from harness.records.spec import TaskSpec
from tasks.metric import Metric
from zoo.registry import UserError

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


class ShallowModel(Frozen):
    """One fitted model.

    Attributes:
        name: what it reads.
        dev, test: accuracies.
        seconds: of its features and its fit.
    """

    name: str
    dev: Fraction
    test: Fraction
    seconds: Seconds


class ShallowStudy(Frozen):
    """Shallow models on one task, from the simplest to the richest.

    Attributes:
        schema_version: of this class.
        task: the key of the task.
        sizes: examples of each split.
        digests: SHA-256 of each split.
        models: the models.
        started: when the study began.
        environment: of the study.
    """

    schema_version: Literal[1] = 1
    task: str
    sizes: Mapping[str, Count]
    digests: Mapping[str, str]
    models: tuple[ShallowModel, ...]
    started: Time
    environment: Environment

    @property
    def name(self) -> str:
        """The name of the task, without version and options."""
        return self.task.partition("@")[0]


def write_study(folder: Path, study: ShallowStudy) -> Path:
    """Write the record of a study; one per task."""
    folder.mkdir(parents=True, exist_ok=True)
    text = study.model_dump_json(indent=1) + "\n"
    return write_atomic(folder / f"{study.name}.json", text.encode())


def read_studies(folder: Path) -> list[ShallowStudy]:
    """Every study of a folder, in order of file name.

    Raises:
        UserError: a file is not a record of a study.
    """
    studies = []
    for path in sorted(folder.glob("*.json")):
        try:
            studies.append(ShallowStudy.model_validate_json(read_text(path)))
        except (OSError, ValueError) as error:
            raise UserError(
                f"{path} is not a record of shallow models; move it away, and fit them again"
            ) from error
    return studies
