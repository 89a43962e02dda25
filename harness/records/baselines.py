"""The baselines of a task: what is reached on its test split without attention.

They belong to the task and its data, not to a run: a store has one file of them for each.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Literal

from harness.records.fields import Fraction, Time
from harness.records.record import Environment, Record
from harness.records.returns import Return
from harness.records.scores import Nats
from harness.records.spec import Count, Frozen, TaskSpec

FOLDER = "baselines"
"""The folder of these files in a store."""


class TaskBaselines(Frozen):
    """The baselines of a task on given data.

    Attributes:
        schema_version: of this class.
        spec: the task and its data.
        version: of the set of baselines that the code has: `tasks.BASELINES_VERSION`.
        accuracies: test accuracies, by name.
        losses: mean cross-entropies in nats on test, by name; empty unless it is of a language.
        returns: normalised returns in the test episodes, by name; empty unless it has episodes.
        left: steps that are not fitted yet, in order; empty where the set is complete.
        started: when the first step began.
        environment: that of the fits.
    """

    schema_version: Literal[1] = 1
    spec: TaskSpec
    version: Count
    accuracies: Mapping[str, Fraction]
    losses: Mapping[str, Nats]
    returns: Mapping[str, Return]
    left: tuple[str, ...]
    started: Time
    environment: Environment

    @property
    def scores(self) -> dict[str, float]:
        """What runs of the task are compared with, by name: the higher, the better."""
        nats = {name: -loss for name, loss in self.losses.items()}
        return nats or dict(self.returns or self.accuracies)


def name_of_task(spec: TaskSpec) -> str:
    """The name of the file of a task's baselines, without suffix: one for each key and digest."""
    text = json.dumps([spec.key, spec.digests], sort_keys=True)
    return f"{spec.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def with_baselines(
    records: Iterable[Record], found: Iterable[TaskBaselines], version: int
) -> list[Record]:
    """The records with the baselines of their tasks in place of what they hold.

    They have none where `found` has no complete set of that version: see `missing`.
    """
    complete = {
        name_of_task(baselines.spec): {
            "baselines": baselines.accuracies,
            "baseline_losses": baselines.losses,
            "baseline_returns": baselines.returns,
        }
        for baselines in found
        if baselines.version == version and not baselines.left
    }
    none = {"baselines": {}, "baseline_losses": {}, "baseline_returns": {}}
    return [
        record.model_copy(update=complete.get(name_of_task(record.spec.task), none))
        for record in records
    ]


def missing(spec: TaskSpec) -> str:
    """Which file a table without baselines lacks, and how to make it."""
    return (
        f"{FOLDER}/{name_of_task(spec)}.json is missing, incomplete or not of this version's set "
        "of baselines; make it with: harness report --baselines"
    )
