"""Measure claims of performance: `python -m benchmarks [NAME ...]`."""

import argparse
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.claims import ClaimRecord, Setting

# Modules that are imported here would be imported again in every process that they start.
BENCHMARKS = (
    "layer", "step", "profiles", "memory", "training_step", "loading", "pathfinder",
    "cost_overhead", "library_twins", "seeds_at_once", "board_statistics", "prediction",
    "workers",
)  # fmt: skip
"""Modules of this package with `CLAIMS` and `measure`, most informative first."""

LONG = ("workers",)
"""Those that take minutes: measured only if they are named."""

STATES = {True: "met", False: "NOT MET", None: "-"}


def main() -> int:
    """Measure, print a table, and return 1 where a claim is not met or a benchmark fails."""
    from benchmarks.claims import RESULTS, Setting, Stopwatch
    from harness.environment import keep_freed_memory, pick_device

    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"{', '.join(BENCHMARKS)}; by default all but {', '.join(LONG)}",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the records")
    parser.add_argument("--tiny", action="store_true", help="smallest sizes, to test the code")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(BENCHMARKS):
        parser.error(f"{', '.join(sorted(unknown))}: give some of {', '.join(BENCHMARKS)}")
    if arguments.tiny and arguments.out == RESULTS:
        parser.error("--tiny measures nothing that may be published; give another --out")
    # Otherwise the profiler writes messages to stderr.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    keep_freed_memory()
    setting = Setting(device=pick_device(arguments.device), tiny=arguments.tiny)
    records, failed, watch = [], [], Stopwatch()
    for name in arguments.names or [one for one in BENCHMARKS if one not in LONG]:
        try:
            records += measure(name, setting, arguments.out)
        except Exception:
            traceback.print_exc()
            failed.append(name)
        print(f"{name}: {watch.lap():.0f} s", flush=True)
    print("\n".join(["", *map(line_of, records), *(f"{name}: FAILED" for name in failed)]))
    return 1 if failed or any(record.met is False for record in records) else 0


def measure(name: str, setting: "Setting", out: Path) -> "list[ClaimRecord]":
    """Measure the claims of a module that are made for the device, and write their records."""
    from benchmarks.claims import ProfileRecord, Stopwatch, record_of, write

    module, watch, records = import_module(f"benchmarks.{name}"), Stopwatch(), []
    claims = {one.name: one for one in module.CLAIMS if setting.kind in one.bounds}
    for found in module.measure(setting) if claims else ():
        if isinstance(found, ProfileRecord):
            write(found, out, setting.kind)
        elif found.name in claims:
            record = record_of(claims[found.name], found, setting.kind, watch.lap())
            write(record, out, setting.kind)
            records.append(record)
    return records


def line_of(record: "ClaimRecord") -> str:
    """One claim: its name, ratio with quartiles, bound, and whether it is met."""
    name = f"{record.name:28}"
    if record.ratio is None:
        return f"{name} not measured: {record.reason}"
    q1, median, q3 = (getattr(record.ratio, part) for part in ("q1", "median", "q3"))
    bound = "" if record.bound is None else f"at most {record.bound:.3g}"
    return f"{name} {median:8.3g} [{q1:.3g}, {q3:.3g}]  {bound:15} {STATES[record.met]}"


if __name__ == "__main__":
    sys.exit(main())
