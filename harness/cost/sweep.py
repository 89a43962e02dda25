"""A cost sweep: the measurements of every row, from short to long, each with a record."""

import time
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from harness.cost.process import Outcome
from harness.environment import describe
from harness.provenance import options_of
from harness.records.cost import CostRecord, CostSpec
from harness.records.fields import now
from harness.records.store import CostStore
from zoo.variants import variants

Measure = Callable[[CostSpec], Outcome]


def sweep(
    specs: Sequence[CostSpec],
    store: CostStore,
    measure: Measure,
    *,
    rerun: bool,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[tuple[CostRecord, bool]]:
    """Make every measurement without a final record; yield its record and whether it is new.

    Measurements of a row are made from short to long. After one that does not end in `ok`, the
    longer ones are skipped, and their records say so.

    Args:
        specs: the measurements; rows are in the order of their first ones.
        store: where records are read and written.
        measure: makes one measurement.
        rerun: make those that have a final record, too.
        clock: gives seconds.

    Raises:
        UserError: a record cannot be written, or a file with the name of one is not a record.
    """
    store.remove_partial_files()
    rows: dict[str, list[CostSpec]] = {}
    for spec in specs:
        # Before anything is measured: it rejects a file that is not a record.
        store.find(spec)
        row = spec.model_copy(update={"length": 1, "batch": 1}).id
        rows.setdefault(row, []).append(spec)
    for row in rows.values():
        reason = ""
        for spec in sorted(row, key=attrgetter("length")):
            found = None if rerun else store.find(spec)
            # A failed measurement could end in another way now.
            kept = found if found and found.status not in ("failed", "skipped") else None
            record = kept or _measured(spec, reason, measure, clock)
            if kept is None:
                store.write(record)
            if not reason and record.status != "ok":
                reason = f"{record.status.replace('_', ' ')} at {spec.length:,} tokens"
            yield record, kept is None


def _measured(
    spec: CostSpec, reason: str, measure: Measure, clock: Callable[[], float]
) -> CostRecord:
    """The record of a measurement, which is skipped where there is a reason."""
    started, start = now(), 0.0 if reason else clock()
    outcome = Outcome("skipped", reason, None) if reason else measure(spec)
    return CostRecord(
        spec=spec,
        status=outcome.status,
        reason=outcome.reason,
        started=started,
        seconds=0.0 if reason else clock() - start,
        environment=describe(spec.device),
        options=options_of(spec),
        claims_linear=all(variants.find(name).traits.linear for name in spec.options),
        measured=outcome.measured,
    )
