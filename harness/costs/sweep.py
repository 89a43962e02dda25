"""A cost sweep: every row from short to long, each measurement in a process that ends with it."""

import logging
import resource
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch

from harness.costs import measurement
from harness.costs.plan import of_run
from harness.data import is_out_of_memory
from harness.engines.local import Processes
from harness.environment import (
    describe,
    is_outdated,
    keep_freed_memory,
    options_of,
    pick_device,
    versions_of,
)
from harness.interrupts import continued, ending
from harness.records.cost import (
    FAILURES,
    REFERENCE,
    CostRecord,
    CostSpec,
    CostStatus,
    Limits,
    Measured,
)
from harness.records.fields import now
from harness.records.record import Record
from harness.records.spec import by_option, label_of
from harness.records.store import CostStore, Store
from harness.stores import with_warnings
from zoo.registry import UserError, in_one_line
from zoo.variants import variants

LOG = logging.getLogger(__name__)
SHARE = 0.9  # Share of the available memory that a measurement on a CPU may take


class Outcome(NamedTuple):
    status: CostStatus
    reason: str
    measured: Measured | None


def measure_in_process(
    spec: CostSpec, limits: Limits, *, seconds: float, timeout: float,
    measure: Callable[[CostSpec, Limits, float, float], Measured] = measurement.measure,
) -> Outcome:  # fmt: skip
    processes, work = Processes(), partial(measure, spec, limits, seconds, timeout)
    call = processes.submit(_measure, work, spec.device, spec.threads)
    try:
        return call.result(timeout)
    except TimeoutError:
        return Outcome("timeout", f"it took more than {timeout:g} s", None)
    except BrokenExecutor as error:
        if str(error) != ending(-signal.SIGKILL):
            return Outcome("crashed", str(error), None)
        return Outcome("out_of_memory", "the system ended it, probably for its memory", None)
    finally:
        processes.kill()


def _measure(measure: Callable[[], Measured], device: str, threads: int) -> Outcome:
    try:
        torch.set_num_threads(threads)
        keep_freed_memory()
        if device == "cpu":
            _limit_memory()
        return Outcome("ok", "", measure())
    except BaseException as error:
        # SystemExit, too: a variant must not end the process without a reason.
        out = is_out_of_memory(error)
        if not out:
            traceback.print_exc()
        return Outcome("out_of_memory" if out else "failed", in_one_line(error), None)


def _limit_memory() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    available = SHARE * psutil.virtual_memory().available
    limits = [int(psutil.Process().memory_info().vms + available), soft, hard]
    limit = min(limit for limit in limits if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def sweep(
    specs: Sequence[CostSpec], store: CostStore, measure: Callable[[CostSpec], Outcome], *,
    rerun: bool, keep_outdated: bool = False, clock: Callable[[], float] = time.monotonic,
) -> Iterator[tuple[CostRecord, bool]]:  # fmt: skip
    # After a measurement that does not end in `ok`, longer ones of its row are `skipped`.
    store.remove_partial_files()
    rows: dict[str, dict[str, CostSpec]] = {}
    for spec in specs:
        # Rejects a file that is not a record, before anything is measured.
        store.find(spec)
        row = spec.model_copy(update={"length": 1, "batch": 1}).id
        rows.setdefault(row, {})[spec.id] = spec
    for row in rows.values():
        reason = ""
        for spec in sorted(row.values(), key=attrgetter("length")):
            found = None if rerun else store.find(spec)
            # A failed measurement may succeed now.
            final = found if found and found.status not in ("failed", "skipped") else None
            if final and not keep_outdated and is_outdated(final):
                final = None
            record = final
            if record is None:
                started, start = now(), 0.0 if reason else clock()
                outcome = Outcome("skipped", reason, None) if reason else measure(spec)
                record = CostRecord(
                    spec=spec, started=started, seconds=0.0 if reason else clock() - start,
                    status=outcome.status, reason=outcome.reason, measured=outcome.measured,
                    environment=describe(spec.device), options=options_of(spec),
                    versions=versions_of({**spec.options, REFERENCE: {}}),
                    claims_linear=all(variants.find(of).traits.linear for of in spec.options),
                )  # fmt: skip
                store.write(record)
            if not reason and record.status != "ok":
                reason = f"{record.status.replace('_', ' ')} at {spec.length:,} tokens"
            yield record, final is None


def measure_all(
    specs: Sequence[CostSpec], folder: Path, *, seconds: float = 3.0, timeout: float = 600.0,
    rerun: bool = False, keep_outdated: bool = False,
) -> list[CostRecord]:  # fmt: skip
    store, records = CostStore.within(folder), []
    store.require_writable()

    @cache
    def limits(device: str, precision: str) -> Limits:
        return measurement.measure_limits(torch.device(device), precision)

    def measure(spec: CostSpec) -> Outcome:
        found = limits(spec.device, spec.precision)
        return measure_in_process(spec, found, seconds=seconds, timeout=timeout)

    with continued(by_same_command=not rerun):
        for record, new in sweep(specs, store, measure, rerun=rerun, keep_outdated=keep_outdated):
            LOG.info(_line(record, new))
            records.append(record)
    return records


def _line(record: CostRecord, new: bool) -> str:
    spec, measured, note = record.spec, record.measured, "" if new else "  (already present)"
    text = record.reason if record.status == "skipped" else record.status.replace("_", " ")
    if measured:
        ratio = f" ({measured.ratio.median:.2f}×)" if measured.ratio else ""
        milliseconds = 1000 * measured.seconds.median
        text = f"{milliseconds:,.{0 if milliseconds >= 100 else 2}f}{ratio} ms"
    label = label_of(spec.attention, by_option(spec.options))
    calls = f"{spec.batch} × " * (spec.batch > 1)
    return f"{label}, {spec.operation}, {calls}{spec.length:,} tokens: {text}{note}"


def present(folder: Path, device: str, *, rerun: bool) -> list[CostSpec]:
    here = describe(pick_device(device))
    specs = [record.spec for record in with_warnings(CostStore.within(folder).read())[0]]
    specs = [
        spec for spec in specs
        if (spec.machine, spec.threads) == (here.device, here.threads) and not spec.superseded
    ]  # fmt: skip
    if not rerun or not specs:
        raise UserError(
            "no --attention is given; give for example --attention primal, or --rerun to repeat "
            f"the measurements of this machine; {folder} has {len(specs)} of them"
        )
    return specs


def is_complete(records: Iterable[CostRecord]) -> bool:
    # Too little memory or time is a result.
    return not any(record.status in FAILURES for record in records)


def measure_runs(runs: Iterable[Record], store: Store, **how: Any) -> list[CostRecord]:
    specs: list[CostSpec] = []
    for run in runs:
        machine, threads = run.environment.device, run.environment.threads
        if run.status == "ok" and machine == describe(run.spec.device).device:
            specs += of_run(run.spec, machine, threads)
    if specs and (running := store.locks.running_here()):
        warnings.warn(
            f"nothing is measured while runs are in progress on this machine ({running}); "
            "the same command measures their costs when they have ended",
            stacklevel=2,
        )
        return []
    return measure_all(specs, store.folder, **how)
