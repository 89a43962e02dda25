"""A cost sweep: the cells of every row, from short to long, each with a record."""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from harness.cost.process import Outcome
from harness.environment import describe
from harness.provenance import options_of
from harness.records.cost import CostRecord, CostSpec
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
    """Measure every cell that has no final record; yield its record and whether it is new.

    The cells of a row are measured from short to long. After one that does not end in `ok`, the
    longer ones are skipped, and their records say so.

    Args:
        specs: the cells; the order of rows is that of their first cells.
        store: where records are read and written.
        measure: measures one cell.
        rerun: measure cells that have a final record, too.
        clock: gives seconds.

    Raises:
        UserError: a record cannot be written, or a file with the name of one is not a record.
    """
    store.remove_partial_files()
    for spec in specs:
        # Before anything is measured: it rejects a file that is not a record.
        store.find(spec)
    for row in _rows(specs):
        reason = ""
        for spec in row:
            record = None if rerun else _final(store.find(spec))
            new = record is None
            if record is None:
                record = _skipped(spec, reason) if reason else _measured(spec, measure, clock)
                store.write(record)
            if not reason and record.status != "ok":
                reason = f"{record.status.replace('_', ' ')} at {spec.length:,} tokens"
            yield record, new


def _rows(specs: Sequence[CostSpec]) -> list[list[CostSpec]]:
    """The cells that differ in length alone, from short to long."""
    rows: dict[str, list[CostSpec]] = {}
    for spec in specs:
        row = spec.model_copy(update={"length": 1, "batch": 1})
        rows.setdefault(row.id, []).append(spec)
    return [sorted(row, key=lambda spec: spec.length) for row in rows.values()]


def _final(record: CostRecord | None) -> CostRecord | None:
    """The record, unless a measurement now could end in another way."""
    repeated = record is None or record.status in ("failed", "skipped")
    return None if repeated else record


def _measured(spec: CostSpec, measure: Measure, clock: Callable[[], float]) -> CostRecord:
    started, start = _now(), clock()
    outcome = measure(spec)
    return _record(spec, outcome, started, clock() - start)


def _skipped(spec: CostSpec, reason: str) -> CostRecord:
    return _record(spec, Outcome("skipped", reason, None), _now(), 0.0)


def _record(spec: CostSpec, outcome: Outcome, started: str, seconds: float) -> CostRecord:
    return CostRecord(
        spec=spec,
        status=outcome.status,
        reason=outcome.reason,
        started=started,
        seconds=seconds,
        environment=describe(spec.device),
        options=options_of(spec),
        claims_linear=all(variants.find(name).traits.linear for name in spec.options),
        measured=outcome.measured,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
