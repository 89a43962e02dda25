"""Two workers of one thread against one worker of two threads: `harness run` on a grid of cells."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.claims import Claim, Finding, Setting, unmeasurable
from harness.measure import quartiles

CELLS = 16
STEPS = 300

CLAIMS = [
    Claim(
        name="two-workers",
        what=f"Time of a grid of {CELLS} cells with two workers of one thread over that with one "
        "worker of two threads",
        bounds={"cpu": 0.8},
        limit="0.5, where a second thread gains nothing and shared caches cost nothing.",
    )
]


def measure(setting: Setting) -> Iterator[Finding]:
    """See `CLAIMS`. One round: the grid is long enough for short load to average out."""
    cells, steps = setting.size(CELLS, 2), setting.size(STEPS, 2)
    how = f"primal on listops, budget laptop with {steps} steps, {cells} seeds; 1 round"
    if (os.cpu_count() or 1) < 2:
        yield from unmeasurable(["two-workers"], how, "there is one CPU")
        return
    with TemporaryDirectory() as store:
        # The data are in the cache after the first cell, and the baselines in the store.
        grid_seconds(store, 1, steps, workers=1, threads=2)
        one = grid_seconds(store, cells, steps, workers=1, threads=2)
        two = grid_seconds(store, cells, steps, workers=2, threads=1)
    yield Finding(
        name="two-workers",
        setting=how,
        ratios=[two / one],
        figures={
            "two workers of one thread (s)": quartiles([two]),
            "one worker of two threads (s)": quartiles([one]),
        },
    )


def grid_seconds(store: str, cells: int, steps: int, *, workers: int, threads: int) -> float:
    """Seconds of one command that trains `cells` seeds, with its start.

    The records that `store` holds before are deleted, and its baselines kept.
    """
    command = [
        sys.executable, "-m", "harness.cli", "run", "--task", "listops", "--attention",
        "primal", "--seeds", ",".join(map(str, range(cells))), "--set", f"train.steps={steps}",
        "--workers", str(workers), "--threads", str(threads), "--device", "cpu",
        "--store", store,
    ]  # fmt: skip
    for record in Path(store).glob("*.json"):
        record.unlink()
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - start
    if len(list(Path(store).glob("*.json"))) != cells:
        raise RuntimeError(f"the grid ended without {cells} records")
    return seconds
