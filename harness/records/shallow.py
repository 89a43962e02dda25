"""What shallow models reach on a task: the record of a study, and the folder of such records."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from harness.records.fields import Count, Fraction, Frozen, Seconds, Time
from harness.records.files import read_text, write_atomic
from harness.records.record import Environment
from zoo.registry import UserError


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
