"""Measure claims: `python -m benchmarks [NAME ...]`, by default all sections but workers."""

# Modules that are imported here would be imported again in every process that they start.
import argparse
import os
import sys
import time
import traceback
from pathlib import Path

RESULTS = Path("results")


def main() -> int:
    """Measure, print a table, and return 1 where a claim is not met or a section fails."""
    from benchmarks.sections import SECTIONS, measure
    from harness.environment import keep_freed_memory, pick_device
    from reports.pages.performance import line_of

    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SECTIONS))
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the records")
    parser.add_argument("--tiny", action="store_true", help="smallest sizes, to test the code")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - SECTIONS.keys():
        parser.error(f"{', '.join(sorted(unknown))}: give some of {', '.join(SECTIONS)}")
    if arguments.tiny and arguments.out == RESULTS:
        parser.error("--tiny measures nothing that may be published; give another --out")
    # Otherwise the profiler that measures allocations writes messages to stderr.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    keep_freed_memory()
    device = pick_device(arguments.device)
    records, failed = [], []
    for name in arguments.names or [name for name in SECTIONS if name != "workers"]:
        start = time.perf_counter()
        try:
            records += measure(name, device, arguments.out, tiny=arguments.tiny)
        except Exception:
            traceback.print_exc()
            failed.append(name)
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    print("\n".join(["", *map(line_of, records), *(f"{name}: FAILED" for name in failed)]))
    return 1 if failed or any(record.met is False for record in records) else 0


if __name__ == "__main__":
    sys.exit(main())
