"""Measure claims of performance: `python -m benchmarks [NAME ...]`."""

# Modules that are imported here would be imported again in every process that they start.
import argparse
import os
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.claims import ClaimRecord

STATES = {True: "met", False: "NOT MET", None: "-"}


def main() -> int:
    """Measure, print a table, and return 1 where a claim is not met or a section fails."""
    from benchmarks.claims import RESULTS, Setting
    from benchmarks.sections import LONG, SECTIONS
    from harness.environment import keep_freed_memory, pick_device

    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    listed = f"{', '.join(SECTIONS)}; by default all but {', '.join(LONG)}"
    parser.add_argument("names", nargs="*", metavar="NAME", help=listed)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the records")
    parser.add_argument("--tiny", action="store_true", help="smallest sizes, to test the code")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - SECTIONS.keys():
        parser.error(f"{', '.join(sorted(unknown))}: give some of {', '.join(SECTIONS)}")
    if arguments.tiny and arguments.out == RESULTS:
        parser.error("--tiny measures nothing that may be published; give another --out")
    # Otherwise the profiler writes messages to stderr.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    keep_freed_memory()
    setting = Setting(device=pick_device(arguments.device), tiny=arguments.tiny)
    records, failed = [], []
    for name in arguments.names or [one for one in SECTIONS if one not in LONG]:
        start = time.perf_counter()
        try:
            records += SECTIONS[name].records(setting, arguments.out)
        except Exception:
            traceback.print_exc()
            failed.append(name)
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    print("\n".join(["", *map(line_of, records), *(f"{name}: FAILED" for name in failed)]))
    return 1 if failed or any(record.met is False for record in records) else 0


def line_of(record: "ClaimRecord") -> str:
    """One claim: its name, ratio with quartiles, bound, and whether it is met."""
    name, ratio = f"{record.name:28}", record.ratio
    if ratio is None:
        return f"{name} not measured: {record.reason}"
    bound = "" if record.bound is None else f"at most {record.bound:.3g}"
    values = f"{ratio.median:8.3g} [{ratio.q1:.3g}, {ratio.q3:.3g}]"
    return f"{name} {values}  {bound:15} {STATES[record.met]}"


if __name__ == "__main__":
    sys.exit(main())
