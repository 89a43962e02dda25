"""Four processes on one store, each killed at random moments and started again.

`python -m tests.harness.kills 100` kills 100 times and prints what was left.
"""

import multiprocessing
import os
import random
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from harness.records.fields import Quartiles
from harness.records.record import Cost, Usage
from harness.records.store import Store

PROCESSES = 4
PRELOADED = (__name__, "harness.cli.cells", "harness.grid", "reports.tables", "torch._dynamo")
"""Modules that a process would import again between two kills."""

CELLS = ["run", "-a", "softmax,none", "--budget", "smoke", "--precision", "fp32"]
CELLS += ["--set", "softmax.backend=sdpa"]  # without a trial, whose result may change
CELLS += ["--threads", "1"]
for option in ("min_len=2", "max_len=24", "train=64", "dev=16", "test=18"):
    CELLS += ["--set", f"listops.{option}"]


class Outcome(NamedTuple):
    """What was left after some kills.

    Attributes:
        kills: processes that were running and were killed.
        grids: grids that were completed.
        cells: runs that finished.
        lost: finished runs whose record changed or disappeared later.
        unreadable: files that were not records, at any time.
        unfinished: cells without a final record at the end of their grid.
    """

    kills: int
    grids: int
    cells: int
    lost: int
    unreadable: int
    unfinished: int


class Size(NamedTuple):
    """A grid: seeds of each of two variants, and steps of a run."""

    seeds: int
    steps: int


def kill_at_random(folder: Path, kills: int, seed: int, size: Size) -> Outcome:
    """Complete grids in new stores, until there were enough kills.

    The moments are those of `random.Random(seed)`: up to half a second apart.
    """
    moments, total = random.Random(seed), Outcome(0, 0, 0, 0, 0, 0)
    while total.kills < kills:
        store = Store(folder / f"{total.grids}")
        one = _complete_grid(store, kills - total.kills, moments, size)
        total = Outcome(*map(sum, zip(total, one, strict=True)))
    return total


def _complete_grid(store: Store, kills: int, moments: random.Random, size: Size) -> Outcome:
    processes = [_start(store, size) for _ in range(PROCESSES)]
    finished: dict[Path, bytes] = {}
    killed = unreadable = 0
    try:
        while any(process.is_alive() for process in processes):
            time.sleep(moments.uniform(0, 0.5))
            index = moments.randrange(PROCESSES)
            if killed < kills and processes[index].is_alive():
                processes[index].kill()
                processes[index].join()
                killed += 1
                processes[index] = _start(store, size)
            records, broken = store.read()
            unreadable += len(broken)
            for path in (store.path(one.spec) for one in records if one.status == "ok"):
                finished.setdefault(path, path.read_bytes())
    finally:
        for process in processes:
            process.kill()
            process.join()
    lost = sum(not path.exists() or path.read_bytes() != was for path, was in finished.items())
    records = store.read()[0]
    ended = sum(record.status == "ok" for record in records)
    return Outcome(killed, 1, ended, lost, unreadable, 2 * size.seeds - ended)


def _start(store: Store, size: Size) -> multiprocessing.Process:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED])
    steps = ["--set", f"train.steps={size.steps}", "--set", f"train.evaluations={size.steps // 10}"]
    seeds = ["--seeds", ",".join(map(str, range(size.seeds)))]
    argv = [*CELLS, *steps, *seeds, "--store", str(store.folder)]
    process = context.Process(target=_run, args=(argv,), daemon=True)
    process.start()
    return process


def _run(argv: list[str]) -> None:
    import harness.run
    from harness.cli import main

    some = Quartiles(q1=1.0, median=1.0, q3=1.0)
    usage = Usage(
        seconds_per_1k_steps=some, tokens_per_second=some, peak_bytes=1, parameters=1, flops=1
    )
    # Measuring would take most of the time.
    cost = Cost(own=usage, softmax=None, time_ratio=None, inference_ratio=None)
    harness.run.measure = lambda plan: cost
    with suppress(SystemExit), Path(os.devnull).open("w") as sys.stdout:
        main(argv)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        outcome = kill_at_random(Path(folder), int(sys.argv[1]), seed=0, size=Size(6, 400))
        sys.stdout.write(f"{outcome}, {time.monotonic() - start:.0f} s\n")
