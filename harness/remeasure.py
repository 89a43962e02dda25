"""The cost of a recorded run, measured again."""

from harness.environment import merge_commits, use_threads
from harness.measure import measure
from harness.plan import Plan, restore
from harness.provenance import environment_of, expected_failures_of, is_baseline
from harness.records.record import Record
from harness.records.store import Store


def remeasure(record: Record, store: Store) -> Record:
    """Measure the cost of a recorded run again, write it to its record, and return the record.

    For runs during which other processes used the machine: they change times, not accuracies.
    Expected failures and `is_baseline` are updated as well, and the commit is added. The
    threads are those of the run.

    Raises:
        UserError: the run was made on another device, with other versions or more threads than this
            machine has, or its task has changed.
    """
    with use_threads(record.environment.threads):
        return _remeasured(record, restore(record.spec), store)


def _remeasured(record: Record, plan: Plan, store: Store) -> Record:
    environment = merge_commits(
        record.environment, environment_of(plan), str(store.path(plan.spec)), "measure it there"
    )
    updated = record.model_copy(
        update={
            "cost": measure(plan),
            # They belong to the task; see `harness.records.baselines`.
            "baselines": {},
            "baseline_losses": {},
            "baseline_returns": {},
            "expected_failures": expected_failures_of(plan),
            "is_baseline": is_baseline(plan.composition),
            "environment": environment,
        }
    )
    store.write(updated)
    return updated
