"""Records of runs, one JSON file each, written whole or not at all.

Free of torch, so that a leaderboard builds anywhere in a second.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError, model_validator

from harness.files import place, require_writable
from harness.spec import Frozen, ModelSpec, RunSpec, TaskSpec, TrainSpec
from zoo.registry import Refused, in_one_line

__all__ = [
    "FINAL",
    "WITHOUT_SOFTMAX",
    "Broken",
    "Cost",
    "Environment",
    "Final",
    "ModelSpec",
    "Point",
    "Quartiles",
    "Record",
    "RunSpec",
    "Status",
    "Store",
    "TaskSpec",
    "TrainSpec",
    "Usage",
]

Status = Literal["ok", "diverged", "out_of_memory", "failed", "interrupted"]

FINAL: tuple[Status, ...] = ("ok", "diverged", "out_of_memory")
"""Ends that the same specification would come to again."""


WITHOUT_SOFTMAX = "softmax: out of memory"
"""Stands where a ratio would, in every table, if the memory did not hold softmax."""


class Quartiles(Frozen):
    """The middle half of repeated measurements."""

    q1: float
    median: float
    q3: float


class Point(Frozen):
    """One reading of a run's curve.

    Attributes:
        step: optimiser steps done.
        seconds: training time so far, evaluation excluded.
        loss: mean task loss since the last reading.
        losses: mean of each extra loss term since the last reading, as weighted.
        dev_accuracy: fraction right on the whole dev split; absent where dev was not read.
    """

    step: int
    seconds: float
    loss: float
    losses: dict[str, float]
    dev_accuracy: float | None


class Final(Frozen):
    """The outcome of a finished run, at the checkpoint that was best on dev.

    Attributes:
        test_accuracy: fraction right on the whole test split, read once.
        test_examples: size of that split.
        dev_accuracy: of the chosen checkpoint.
        best_step: the step it was taken at.
        train_seconds: time inside training steps.
        seconds: everything, in all processes that took part: data, measuring, training, evaluation.
    """

    test_accuracy: float
    test_examples: int
    dev_accuracy: float
    best_step: int
    train_seconds: float
    seconds: float


class Usage(Frozen):
    """What one model costs on one device.

    Attributes:
        seconds_per_1k_steps: of the very step that trains, extra losses and optimiser included.
        tokens_per_second: inference, padding counted as tokens.
        peak_bytes: the most memory allocated during one training step, beyond what was held
            before it.
        parameters: trainable parameters.
        flops: floating-point operations in matrix products of one training step.
    """

    seconds_per_1k_steps: Quartiles
    tokens_per_second: Quartiles
    peak_bytes: int
    parameters: int
    flops: int


class Cost(Frozen):
    """A model's cost, beside SDPA softmax measured in turns with it, in the same run.

    Attributes:
        own: of the model.
        softmax: of the same model around SDPA softmax; absent where the memory did not hold that,
            and with it all ratios.
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
            raise ValueError("softmax and its ratios are absent together or not at all")
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
            several where a run was begun at one and finished, or measured anew, at another.
    """

    device: str
    threads: int
    memory_gib: float
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
        spec: what was run.
        status: `ok`, or how it ended.
        reason: one line where status is not `ok`.
        started: UTC, ISO 8601.
        environment: where.
        floors: accuracies on the same test split that need no attention, by name.
        gaps: checks that its variants are known to fail, `VARIANT: CHECK`, each with its reason.
        curve: readings in order of step.
        cost: absent where the run ended before it was measured.
        final: absent where the run did not finish.
    """

    schema_version: Literal[1] = 1
    spec: RunSpec
    status: Status
    reason: str
    started: str
    environment: Environment
    floors: Mapping[str, float]
    gaps: Mapping[str, str] = {}
    curve: list[Point]
    cost: Cost | None
    final: Final | None


class Broken(NamedTuple):
    """A file in a store that is no record, and why in one line."""

    path: Path
    reason: str


class Store:
    """A folder of records."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made when it is first written to."""
        self.folder = folder

    def require_writable(self) -> None:
        """See to it that the folder can be written.

        Raises:
            Refused: it cannot.
        """
        require_writable(self.folder, f"store {str(self.folder)!r}", "give another --store")

    def path(self, spec: RunSpec) -> Path:
        """Where the record of `spec` stands."""
        name = (
            f"{spec.task.name}-{spec.attention}-{spec.budget}-{spec.device}-s{spec.seed}-{spec.id}"
        )
        return self.folder / f"{name}.json"

    def checkpoint(self, spec: RunSpec) -> Path:
        """Where the state of an unfinished run of `spec` stands."""
        return self.path(spec).with_suffix(".checkpoint")

    def find(self, spec: RunSpec) -> Record | None:
        """The record of `spec`, if the store holds one.

        Raises:
            Refused: what stands in its place is no record; it is left as it is.
        """
        path = self.path(spec)
        if not path.exists():
            return None
        found = _read(path)
        if isinstance(found, Broken):
            raise Refused(
                f"{path} is not a record ({found.reason}); move it away to run this again"
            )
        return found

    def write(self, record: Record) -> Path:
        """Put the record in the store, whole or not at all, and return its path."""
        text = record.model_dump_json(indent=1) + "\n"
        return place(self.path(record.spec), text.encode())

    def read(self) -> tuple[list[Record], list[Broken]]:
        """Every record, in order of file name, and every file that is none."""
        found = [_read(path) for path in sorted(self.folder.glob("*.json"))]
        records = [one for one in found if isinstance(one, Record)]
        return records, [one for one in found if isinstance(one, Broken)]


def _read(path: Path) -> Record | Broken:
    try:
        return Record.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        return Broken(path, f"{where}: {first['msg']}")
    except (OSError, UnicodeDecodeError) as error:
        return Broken(path, in_one_line(error))
