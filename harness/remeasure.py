"""The cost of a recorded run, measured again."""

from harness.environment import merge_commits, use_threads
from harness.measure import measure
from harness.plan import restore
from harness.provenance import environment_of
from harness.records.record import Record
from harness.records.store import Store
from harness.reference import with_fastest_backend
from harness.torch_state import unchanged
from zoo.registry import UserError


def remeasure(record: Record, store: Store) -> Record:
    """Measure the cost of a recorded run again, write it to its record, and return the record.

    For runs during which other processes used the machine. Nothing but the cost changes, and the
    commit is added. The threads are those of the run. The lock of the run is held until the record
    is written, so that no other process repeats the run meanwhile.

    Raises:
        UserError: another process runs it or has replaced it by one that did not finish, it was
            made on another device, with other versions or more threads than this machine has, or
            its task has changed.
    """
    path, threads = store.path(record.spec), record.environment.threads
    name, steps = store.name(record.spec), record.spec.train.steps
    lock = store.locks.acquire(name, threads=threads, steps=steps)
    if lock is None:
        raise UserError(f"another process runs {path}; measure it when that has ended")
    try:
        latest = store.find(record.spec)
        if latest is None or latest.status != "ok":
            raise UserError(f"{path} is no longer a finished run; run it again")
        lock.report(phase="measure cost")
        with use_threads(latest.environment.threads):
            return _remeasured(latest, store)
    finally:
        lock.release(keep_state=store.checkpoint(record.spec).exists())


def _remeasured(record: Record, store: Store) -> Record:
    plan = restore(record.spec)
    environment = merge_commits(
        record.environment, environment_of(plan), str(store.path(plan.spec)), "measure it there"
    )
    with unchanged(f"measuring {record.spec.attention}"):
        cost = measure(with_fastest_backend(plan, store))
    updated = record.model_copy(update={"cost": cost, "environment": environment})
    store.write(updated)
    return updated
