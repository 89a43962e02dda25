"""A cost sweep: the measurements of every row, from short to long, each with a record.

Each is made in a separate process, so that what it allocates, caches or breaks ends with it.
"""

import multiprocessing
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from operator import attrgetter
from typing import NamedTuple

import psutil
import torch

from harness.cost import measurement
from harness.data import is_out_of_memory
from harness.environment import describe, keep_freed_memory
from harness.interrupts import ending
from harness.provenance import implementations, is_outdated, options_of
from harness.records.cost import CostRecord, CostSpec, CostStatus, Limits, Measured
from harness.records.fields import now
from harness.records.store import CostStore
from harness.reference import REFERENCE
from zoo.registry import in_one_line
from zoo.variants import variants

PRELOADED = (__name__, "torch._dynamo")
"""Modules that every measurement needs; the second, for counting FLOPs, takes seconds to import."""

SHARE = 0.9
"""Share of the available memory for a measurement on a CPU: with more, others would end."""


class Outcome(NamedTuple):
    """The status of a measurement, the reason in one line, and the measured values."""

    status: CostStatus
    reason: str
    measured: Measured | None


def measure_in_process(
    spec: CostSpec,
    limits: Limits,
    *,
    seconds: float,
    timeout: float,
    measure: Callable[[CostSpec, Limits, float, float], Measured] = measurement.measure,
) -> Outcome:
    """Measure in a new process, which is killed after `timeout` seconds.

    `measure`, a function of a module, does the work there; see `harness.cost.measurement`.
    """
    context = multiprocessing.get_context("forkserver")
    # The server imports them once, and each process is a copy of it.
    context.set_forkserver_preload([*PRELOADED])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=_measure,
        args=(sender, partial(measure, spec, limits, seconds, timeout), spec.device, spec.threads),
        daemon=True,
    )
    process.start()
    sender.close()
    try:
        if not receiver.poll(timeout):
            return Outcome("timeout", f"it took more than {timeout:g} s", None)
        return receiver.recv()
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGKILL:
            reason = "the system ended it, probably for its memory"
            return Outcome("out_of_memory", reason, None)
        return Outcome("crashed", ending(process.exitcode or 0), None)
    finally:
        process.kill()
        process.join()
        receiver.close()


def _measure(
    sender: Connection, measure: Callable[[], Measured], device: str, threads: int
) -> None:
    # Ctrl-C reaches the whole group of processes: the parent ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        torch.set_num_threads(threads)
        keep_freed_memory()
        if device == "cpu":
            _limit_memory()
        outcome = Outcome("ok", "", measure())
    except BaseException as error:
        # SystemExit as well: a variant must not end the process without a reason.
        out = is_out_of_memory(error)
        if not out:
            traceback.print_exc()
        outcome = Outcome("out_of_memory" if out else "failed", in_one_line(error), None)
    sender.send(outcome)


def _limit_memory() -> None:
    """Let allocations fail beyond `SHARE` of the memory that is available now.

    A lower limit of the user, by `ulimit -v`, stays.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    available = SHARE * psutil.virtual_memory().available
    limits = [int(psutil.Process().memory_info().vms + available), soft, hard]
    limit = min(limit for limit in limits if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def sweep(
    specs: Sequence[CostSpec],
    store: CostStore,
    measure: Callable[[CostSpec], Outcome],
    *,
    rerun: bool,
    keep_outdated: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[tuple[CostRecord, bool]]:
    """Make every measurement without a final record; yield its record and whether it is new.

    A record of earlier code is replaced, unless `keep_outdated`.

    Measurements of a row are made from short to long. After one that does not end in `ok`, the
    longer ones are skipped, and their records say so. Rows are in the order of their first ones;
    with `rerun` those that have a final record are made, too.

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
            final = found if found and found.status not in ("failed", "skipped") else None
            if final and not keep_outdated and is_outdated(final):
                final = None
            record = final or _measured(spec, reason, measure, clock)
            if final is None:
                store.write(record)
            if not reason and record.status != "ok":
                reason = f"{record.status.replace('_', ' ')} at {spec.length:,} tokens"
            yield record, final is None


def _measured(
    spec: CostSpec, reason: str, measure: Callable[[CostSpec], Outcome], clock: Callable[[], float]
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
        implementations=implementations({**spec.options, REFERENCE: {}}),
        options=options_of(spec),
        claims_linear=all(variants.find(name).traits.linear for name in spec.options),
        measured=outcome.measured,
    )
