"""Grids of runs by `harness run`."""

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.runner import Runner
from harness.records.fields import Quartiles

RUNS, STEPS = 16, 300


def measure_workers(runner: Runner) -> None:
    """Two workers of one thread against one of two threads: `harness run` on a grid of runs."""
    # One round: the grid is long enough for short load to average out.
    count, steps = runner.size(RUNS, 2), runner.size(STEPS, 2)
    how = f"primal on listops, recipe laptop with {steps} steps, {count} seeds; 1 round"
    if (os.cpu_count() or 1) < 2:
        runner.skip("*", how, "there is one CPU")
        return
    with TemporaryDirectory() as store:
        # The data are in the cache after the first run, and the baselines in the store.
        grid_seconds(store, 1, steps, workers=1, threads=2)
        one_worker = grid_seconds(store, count, steps, workers=1, threads=2)
        two_workers = grid_seconds(store, count, steps, workers=2, threads=1)
    figures = {
        "two workers of one thread (s)": Quartiles.of([two_workers]),
        "one worker of two threads (s)": Quartiles.of([one_worker]),
    }
    runner.record("two-workers", how, [two_workers / one_worker], figures)


def grid_seconds(store: str, count: int, steps: int, *, workers: int, threads: int) -> float:
    """Seconds of one command that trains `count` seeds, with its start.

    The records that `store` holds before are deleted, and its baselines kept.
    """
    command = [
        sys.executable, "-m", "harness.cli", "run", "--task", "listops", "--attention",
        "primal", "--seeds", ",".join(map(str, range(count))), "--set", f"train.steps={steps}",
        "--workers", str(workers), "--threads", str(threads), "--device", "cpu",
        "--store", store,
    ]  # fmt: skip
    for record in Path(store).glob("*.json"):
        record.unlink()
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - start
    if len(list(Path(store).glob("*.json"))) != count:
        raise RuntimeError(f"the grid ended without {count} records")
    return seconds
