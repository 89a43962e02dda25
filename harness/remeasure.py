"""The cost of a recorded run, measured again."""

from harness.environment import merge_commits
from harness.measure import measure
from harness.plan import restore
from harness.provenance import environment_of, expected_failures_of
from harness.records.record import Record
from harness.records.store import Store


def remeasure(record: Record, store: Store) -> Record:
    """Measure the cost of a recorded run again, write it to its record, and return the record.

    For runs during which other processes used the machine: they change times, not accuracies.
    Baselines and expected failures are updated as well, and the commit is added.

    Raises:
        UserError: the run was made on another device, with other threads or other versions, or its
            task has changed.
    """
    plan = restore(record.spec)
    environment = merge_commits(
        record.environment, environment_of(plan), str(store.path(plan.spec)), "measure it there"
    )
    updated = record.model_copy(
        update={
            "cost": measure(plan),
            "baselines": dict(plan.data.baselines),
            "expected_failures": expected_failures_of(plan),
            "environment": environment,
        }
    )
    store.write(updated)
    return updated
